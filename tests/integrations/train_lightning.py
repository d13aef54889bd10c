"""A Lightning training of a small net, with a callback or without."""

from __future__ import annotations

import argparse
from hashlib import sha256
from importlib import import_module
from typing import Any

import torch
from torch import nn

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--package", default="lightning.pytorch")
add("--callback", help="folder of the logs")
add("--steps", type=int, nargs="+", default=[1])
add("--accumulate", type=int, default=1)
add("--evaluate", type=int, default=0, help="after how many batches each time")
add("--forces", action="store_true", help="evaluate with gradients")
add("--gan", action="store_true", help="manual optimization of two optimizers")
add("--calls", action="store_true", help="steps are calls of the model, of a validation alone")
add("--max-steps", type=int, default=4)
add("--save", help="file of a checkpoint")
add("--resume", help="checkpoint")
add("--ranks", type=int, default=1)
add("--fail-after", type=int, default=-1, help="completed steps")
args = parser.parse_args()
pl = import_module(args.package)


class Net(pl.LightningModule):  # type: ignore[name-defined]
    """Not called itself: its steps call its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
        self.criterion = nn.MSELoss()

    def loss(self, batch: Any) -> Any:
        return self.criterion(self.net(batch), batch.sum(1, keepdim=True))

    def training_step(self, batch: Any) -> Any:
        loss = self.loss(batch)
        if self.global_step == args.fail_after:
            raise ZeroDivisionError("as asked for")
        return loss

    def validation_step(self, batch: Any) -> None:
        if args.forces:
            with torch.enable_grad():
                position = batch.clone().requires_grad_()
                self.log("force", torch.autograd.grad(self.net(position).sum(), position)[0].norm())
        else:
            self.log("loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Gan(Net):
    """Two optimizers that take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = nn.Linear(8, 8), nn.Linear(8, 1)

    def training_step(self, batch: Any) -> None:
        makes, judges = self.optimizers()
        judges.zero_grad()
        self.manual_backward(self.judge(self.maker(batch).detach()).mean() - self.judge(batch).mean())
        judges.step()
        makes.zero_grad()
        self.manual_backward(-self.judge(self.maker(batch)).mean())
        makes.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.AdamW(part.parameters(), lr=0.01) for part in (self.maker, self.judge)]


def loader() -> Any:
    data = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)


pl.seed_everything(0, verbose=False)
model = Gan() if args.gan else Net()
callbacks = []
if args.callback:
    from numtui.integrations.lightning import CaptureCallback

    callbacks = [CaptureCallback(args.callback, steps=args.steps, forward=args.calls)]
trainer = pl.Trainer(
    accelerator="cpu",
    devices=args.ranks,
    strategy="ddp" if args.ranks > 1 else "auto",
    max_steps=args.max_steps,
    accumulate_grad_batches=args.accumulate,
    limit_val_batches=2 if args.evaluate else 0,
    val_check_interval=args.evaluate or None,
    check_val_every_n_epoch=None if args.evaluate else 1,
    callbacks=callbacks,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
if args.calls:
    trainer.validate(model, loader(), verbose=False)
else:
    trainer.fit(model, loader(), loader() if args.evaluate else None, ckpt_path=args.resume)
if args.save:
    trainer.save_checkpoint(args.save)
parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("state", sha256(parameters + torch.get_rng_state().numpy().tobytes()).hexdigest())  # noqa: T201
