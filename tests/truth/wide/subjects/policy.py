"""Proximal policy optimization: advantages backwards in time, clipped ratios, a value function, an entropy bonus."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("loop", "triangle", "distribution", "by-where", "epochs-apart")
BUGS = (
    Bug(name="discount", phase="", sizes=(1e-3, 0.05)),
    Bug(name="trace", phase="", sizes=(1e-3, 0.05)),
    Bug(name="biased-spread", phase=""),
    Bug(name="clip", phase="", sizes=(0.5,)),
    Bug(name="not-detached", phase=""),
    Bug(name="value-share", phase="", sizes=(1e-3, 0.5)),
    Bug(name="entropy-sign", phase=""),
    Bug(name="old-policy", phase=""),
    Bug(name="no-ends", phase=""),
)
T, B, SEEN, ACTIONS = 6, 4, 8, 5
GAMMA, LAMBDA = 0.99, 0.95


def build(run: Run) -> nn.Module:
    body = nn.Sequential(nn.Linear(SEEN, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
    return nn.ModuleDict({"body": body, "actor": nn.Linear(16, ACTIONS), "critic": nn.Linear(16, 1)})


def batch(run: Run) -> dict[str, Tensor]:
    return {
        "seen": torch.randn(T + 1, B, SEEN),
        "actions": torch.randint(ACTIONS, (T, B)),
        "rewards": torch.randn(T, B),
        "going": (torch.rand(T, B) > 0.2).float(),
        "old": -1.6 + 0.3 * torch.randn(T, B),
    }


def advantages(values: Tensor, data: dict[str, Tensor], run: Run) -> Tensor:
    """Generalized advantage estimation: (T, B)."""
    gamma, trace = GAMMA * (2 - run.factor("discount")), LAMBDA * (2 - run.factor("trace"))
    going = torch.ones_like(data["going"]) if run.has("no-ends") else data["going"]  # bug: no-ends
    deltas = data["rewards"] + gamma * values[1:] * going - values[:-1]  # bug: discount, no-ends
    if run.form == "triangle":
        # the product of what goes on between two times, by differences of logarithms where nothing has ended
        share = torch.zeros(T, T, B, dtype=values.dtype)
        for i in range(T):
            share[i, i] = 1.0
            for j in range(i + 1, T):
                share[i, j] = share[i, j - 1] * (gamma * trace) * going[j - 1]  # bug: trace, discount, no-ends
        return (share * deltas[None]).sum(1)  # bug: trace
    last, made = torch.zeros_like(deltas[0]), []
    for t in reversed(range(T)):
        last = deltas[t] + gamma * trace * going[t] * last  # bug: trace, discount, no-ends
        made.append(last)
    return torch.stack(made[::-1])


def log_probabilities(logits: Tensor, actions: Tensor, run: Run) -> tuple[Tensor, Tensor]:
    """The logarithm of each action's probability, and the entropies."""
    if run.form == "distribution":
        policy = torch.distributions.Categorical(logits=logits)
        return policy.log_prob(actions), policy.entropy()
    every = functional.log_softmax(logits, -1)
    return every.gather(-1, actions[..., None])[..., 0], -(every.exp() * every).sum(-1)


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    hidden = model["body"](data["seen"])
    values = model["critic"](hidden)[..., 0]
    found = advantages(values if run.has("not-detached") else values.detach(), data, run)  # bug: not-detached
    returns = (found + values[:-1]).detach()
    spread = found.std(correction=0 if run.has("biased-spread") else 1)  # bug: biased-spread
    found = (found - found.mean()) / (spread + 1e-8)  # bug: biased-spread, not-detached
    chosen, entropy = log_probabilities(model["actor"](hidden[:-1]), data["actions"], run)
    old = chosen.detach() if run.has("old-policy") else data["old"]
    ratio = (chosen - old).exp()  # bug: old-policy
    width = 0.2 * run.factor("clip")
    clipped = ratio.clamp(1 - width, 1 + width)  # bug: clip
    if run.form == "by-where":
        low, high = found * ratio, found * clipped  # bug: clip, not-detached
        gain = torch.where(low < high, low, high).mean()
    else:
        gain = torch.minimum(found * ratio, found * clipped).mean()  # bug: clip, not-detached
    share = 0.5 * run.factor("value-share")
    cost = share * functional.mse_loss(values[:-1], returns)  # bug: value-share
    bonus = 0.01 * entropy.mean()
    bonus = -bonus if run.has("entropy-sign") else bonus  # bug: entropy-sign
    if run.form == "epochs-apart":
        (-gain).backward(retain_graph=True)
        cost.backward(retain_graph=True)
        (-bonus).backward()  # bug: entropy-sign
        loss = cost.detach() - gain.detach() - bonus.detach()
    else:
        loss = cost - gain - bonus  # bug: entropy-sign, value-share
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    return loss
