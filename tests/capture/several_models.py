"""Steps of more than a model and its optimizer: `several_models.py gan|sac|ema|noising [--bug] [--print-state]`."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def gan(bug: bool) -> Iterable[Tensor]:
    """A generator and its discriminator, a step each. Bug: real is called false."""
    generator, judge = mlp(4, 8), mlp(8, 1)
    makes, judges = optimizer_of(generator), optimizer_of(judge)
    for _ in range(2):
        real, noise = torch.randn(8, 8), torch.randn(8, 4)
        true, false = torch.ones(8, 1), torch.zeros(8, 1)
        fake = generator(noise)
        makes.zero_grad()
        functional.binary_cross_entropy_with_logits(judge(fake), true).backward()
        makes.step()
        judges.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(judge(real), false if bug else true)
        (loss + functional.binary_cross_entropy_with_logits(judge(fake.detach()), false)).backward()
        judges.step()
    return [*generator.parameters(), *judge.parameters()]


def sac(bug: bool) -> Iterable[Tensor]:
    """Actor, critic, target network and temperature. Bug: another discount in the critic's target."""
    actor, critic = mlp(4, 2), mlp(6, 1)
    target = copy.deepcopy(critic)
    temperature = torch.zeros(1, requires_grad=True)
    optimizers = optimizer_of(actor), optimizer_of(critic), torch.optim.Adam([temperature], lr=1e-2)
    state, later, reward, action = (torch.randn(16, size) for size in (4, 4, 1, 2))
    for _ in range(2):
        chosen = torch.tanh(actor(state))
        optimizers[0].zero_grad()
        (-critic(torch.cat([state, chosen], 1)).mean()).backward()
        optimizers[0].step()
        with torch.no_grad():
            value = target(torch.cat([later, torch.tanh(actor(later))], 1))
            wanted = reward + (0.9 if bug else 0.99) * value
        optimizers[1].zero_grad()
        functional.mse_loss(critic(torch.cat([state, action], 1)), wanted).backward()
        optimizers[1].step()
        optimizers[2].zero_grad()
        (temperature * (chosen.detach().mean() + 1)).sum().backward()
        optimizers[2].step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
    return [*actor.parameters(), *critic.parameters(), *target.parameters()]


def ema(bug: bool) -> Iterable[Tensor]:
    """A copy that averages the weights, a sum of losses, and a validation after each step. Bug: another decay."""
    model = mlp(4, 1)
    average = copy.deepcopy(model)
    optimizer = optimizer_of(model)
    seen = torch.zeros(())
    for _ in range(2):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += loss.detach()
        with torch.no_grad():
            decay = 0.9 if bug else 0.99
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(decay).add_(fast, alpha=1 - decay)
            seen += model(torch.ones(64, 4)).mean()
    return [*model.parameters(), *average.parameters()]


def noising(bug: bool) -> Iterable[Tensor]:
    """A denoiser with a teacher. Bug: no square root of the signal's share, before the forward pass."""
    model, teacher = mlp(5, 4), mlp(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data, shares = torch.randn(64, 4), torch.linspace(1, 0.01, 100)
    for _ in range(2):
        clean, time = data[torch.randint(64, (8,))], torch.randint(100, (8,))
        noise = torch.randn_like(clean)
        with torch.no_grad():
            share = shares[time][:, None]
            noised = (share if bug else share.sqrt()) * clean + (1 - share).sqrt() * noise
            wanted = noise + 0.1 * teacher(clean)
        optimizer.zero_grad()
        functional.mse_loss(model(torch.cat([noised, time[:, None] / 100], 1)), wanted).backward()
        optimizer.step()
    return list(model.parameters())


LOOPS: dict[str, Callable[[bool], Iterable[Tensor]]] = {"gan": gan, "sac": sac, "ema": ema, "noising": noising}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--bug", action="store_true")
    parser.add_argument("--print-state", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    trained = LOOPS[args.loop](args.bug)
    if args.print_state:
        state = [tensor.double().square().sum().item().hex() for tensor in trained]
        sys.stdout.write("\n".join([*state, str(torch.rand(()).item()), ""]))


if __name__ == "__main__":
    main()
