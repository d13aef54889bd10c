"""A Hugging Face training of a tiny Llama, with a callback or without."""

from __future__ import annotations

import argparse
from hashlib import sha256

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--callback", help="folder of the logs")
add("--steps", type=int, nargs="+", default=[1])
add("--accumulate", type=int, default=1)
add("--evaluate", action="store_true")
add("--calls", action="store_true", help="steps are calls of the model, of an evaluation alone")
add("--max-steps", type=int, default=4)
add("--save", help="folder of the checkpoints, one for every step")
add("--resume", help="checkpoint")
add("--fail-after", type=int, default=-1, help="completed steps")
args = parser.parse_args()


class Failing(Trainer):
    """Raises between the forward and the backward pass."""

    def compute_loss(self, *given, **more):  # type: ignore[no-untyped-def]
        loss = super().compute_loss(*given, **more)
        if self.state.global_step == args.fail_after:
            raise ZeroDivisionError("as asked for")
        return loss


set_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_dropout=0.1,
    )
)
texts = torch.randint(0, 64, (64, 16))
data = [{"input_ids": ids, "labels": ids} for ids in texts]
callbacks = []
if args.callback:
    from numtui.integrations.transformers import CaptureCallback

    callbacks = [CaptureCallback(args.callback, steps=args.steps, forward=args.calls)]
trainer = Failing(
    model,
    TrainingArguments(
        args.save or "unused",
        max_steps=args.max_steps,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=args.accumulate,
        eval_strategy="steps" if args.evaluate else "no",
        eval_steps=1,
        eval_on_start=args.evaluate,
        save_strategy="steps" if args.save else "no",
        save_steps=1,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=data,
    eval_dataset=data[:4],
    callbacks=callbacks,
)
if args.calls:
    trainer.evaluate()
else:
    trainer.train(resume_from_checkpoint=args.resume)
parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("state", sha256(parameters + torch.get_rng_state().numpy().tobytes()).hexdigest())  # noqa: T201
