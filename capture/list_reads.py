"""Numbers that Python reads as a list: torch dispatches no operation for `Tensor.tolist()` on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from .mode_stack import never_compile

__all__ = ["listen"]


def listen(note: Callable[[torch.Tensor, Any], None]) -> Callable[[], None]:
    """Tell `note` of every tensor that becomes a list, and of the list, until what this returns is called."""
    own = vars(torch.Tensor).get("tolist")
    read: Callable[[torch.Tensor], Any] = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        values = read(self)
        note(self, values)
        return values

    def stop() -> None:
        if vars(torch.Tensor).get("tolist") is not tolist:
            return  # somebody else has replaced it since
        if own is None:
            del torch.Tensor.tolist
        else:
            torch.Tensor.tolist = own

    with suppress(AttributeError):  # it would be compiled, and work as well
        never_compile(tolist)
    torch.Tensor.tolist = tolist
    return stop
