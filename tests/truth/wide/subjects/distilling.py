"""A student of a teacher that follows it: two views, a frozen target, soft labels, an average of weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "by-hand", "both-views", "lerp", "groups")
BUGS = (
    Bug(name="teacher-trained", phase=""),
    Bug(name="heat", phase="", sizes=(1e-3, 0.5)),
    Bug(name="center", phase=""),
    Bug(name="sides-swapped", phase=""),
    Bug(name="momentum", phase="", parameters="teacher.*", sizes=(0.01,)),
    Bug(name="no-stop", phase=""),
    Bug(name="projection-bias", phase="", sizes=(0.1,)),
    Bug(name="decays-bias", phase="optimizer", parameters="student.*bias"),
)
B, SEEN, DIM, CLASSES = 8, 10, 16, 6
KEPT, HEAT_STUDENT, HEAT_TEACHER = 0.99, 0.5, 0.25


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEEN, DIM), nn.GELU(), nn.Linear(DIM, DIM), nn.GELU())
        self.head = nn.Linear(DIM, CLASSES)


def build(run: Run) -> nn.Module:
    student = Network()
    model = nn.ModuleDict({"student": student, "teacher": copy.deepcopy(student)})
    with torch.no_grad():
        for p in model["teacher"].parameters():
            p.mul_(0.9)
    model.register_buffer("center", 0.1 * torch.randn(CLASSES))
    model["teacher"].requires_grad_(run.has("teacher-trained"))  # bug: teacher-trained
    return model


def optimizer(model: Any, run: Run) -> Any:
    student = dict(model["student"].named_parameters())
    decayed = [p for name, p in student.items() if p.ndim > 1 or run.has("decays-bias")]
    rest = [p for name, p in student.items() if not (p.ndim > 1 or run.has("decays-bias"))]
    teacher = [p for p in model["teacher"].parameters() if p.requires_grad]
    groups = [{"params": [*decayed, *teacher], "weight_decay": 0.1}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def batch(run: Run) -> dict[str, Tensor]:
    x = torch.randn(B, SEEN)
    return {"one": x + 0.1 * torch.randn(B, SEEN), "other": x + 0.1 * torch.randn(B, SEEN)}


def outputs(network: Any, x: Tensor, run: Run) -> Tensor:
    made = network.body(x)  # bug: no-stop
    bias = network.head.bias * run.factor("projection-bias")  # bug: projection-bias, no-stop
    return functional.linear(made, network.head.weight, bias)  # bug: projection-bias, no-stop


def soft_cross_entropy(target: Tensor, made: Tensor, run: Run) -> Tensor:
    if run.form == "by-hand":
        log_q = made - made.logsumexp(-1, keepdim=True)
        return -(target * log_q).sum(-1).mean()  # bug: no-stop, sides-swapped, teacher-trained
    return functional.cross_entropy(made, target)  # bug: no-stop, sides-swapped, teacher-trained


def targets(made: Tensor, center: Tensor, run: Run) -> Tensor:
    """Probabilities of the teacher, sharpened."""
    heat = HEAT_TEACHER * run.factor("heat")
    if run.has("center"):
        return functional.softmax(made / heat, -1)  # bug: center, heat
    return functional.softmax((made - center) / heat, -1)  # bug: center, heat


def averaged(model: Any, run: Run) -> None:
    kept = KEPT * (1 - run.size if run.has("momentum") else 1.0)
    with torch.no_grad():
        own, of = list(model["teacher"].parameters()), list(model["student"].parameters())
        if run.form == "groups":
            torch._foreach_mul_(own, kept)  # bug: momentum
            torch._foreach_add_(own, of, alpha=1 - kept)  # bug: momentum
            return
        for teacher, student in zip(own, of, strict=True):
            if run.form == "lerp":
                teacher.lerp_(student, 1 - kept)  # bug: momentum
            else:
                teacher.mul_(kept).add_(student, alpha=1 - kept)  # bug: momentum


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    student, teacher = model["student"], model["teacher"]
    one, other = data["one"], data["other"]
    free = run.has("teacher-trained")
    with torch.set_grad_enabled(free):
        if run.form == "both-views":
            taught_one, taught_other = outputs(teacher, torch.cat([one, other]), run).chunk(2)
        else:
            taught_one, taught_other = outputs(teacher, one, run), outputs(teacher, other, run)
        if run.has("no-stop"):
            taught_one = outputs(student, one, run)  # bug: no-stop
        aim_one, aim_other = targets(taught_one, model.center, run), targets(taught_other, model.center, run)
    if run.form == "both-views":
        made_one, made_other = (outputs(student, torch.cat([one, other]), run) / HEAT_STUDENT).chunk(2)
    else:
        made_one, made_other = outputs(student, one, run) / HEAT_STUDENT, outputs(student, other, run) / HEAT_STUDENT
    if run.has("sides-swapped"):
        made_one, made_other = made_other, made_one
    loss = (soft_cross_entropy(aim_one, made_other, run) + soft_cross_entropy(aim_other, made_one, run)) / 2
    loss.backward()  # bug: teacher-trained
    optimizer.step()  # bug: teacher-trained
    optimizer.zero_grad()
    averaged(model, run)
    return loss
