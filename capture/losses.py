"""The losses of a step: the single numbers that its backward passes begin with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .guard import ends_no_run
from .kernels.guards import no_functions, unnoticed

__all__ = ["Losses"]


class Losses:
    """Copies of the tensors of one element that `torch.autograd.backward` is called with.

    A copy stays on its device until it is read; neither autograd nor a capture sees it, and no random number is drawn.
    """

    def __init__(self, after: Callable[[], None] | None = None) -> None:
        """Set up without noting anything yet.

        Args:
            after: called after each backward pass.
        """
        self._after = after
        self._noted: list[torch.Tensor] = []
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None
        self._failed = False

    def install(self) -> None:
        """Note what backward passes begin with from now on."""
        functions: Any = torch.autograd
        original = self._original = functions.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(tensors)
            returned = original(tensors, *args, **kwargs)
            if self._after is not None and self._original is not None:
                self._after()
            return returned

        self._wrapper = functions.backward = backward

    def remove(self) -> None:
        """Note no more; what somebody else has put over the function in the meantime stays."""
        functions: Any = torch.autograd
        if self._original is not None and functions.backward is self._wrapper:
            functions.backward = self._original
        self._original = None

    @ends_no_run
    def _note(self, tensors: Any) -> None:
        if self._original is None or self._failed or torch.compiler.is_compiling():
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return
        for tensor in tensors if isinstance(tensors, list | tuple) else (tensors,):
            local: Any = getattr(tensor, "_local_tensor", tensor)
            if type(local) is torch.Tensor and local.numel() == 1 and local.is_floating_point() and not local.is_meta:
                with no_functions(), unnoticed():
                    self._noted.append(local.detach().clone())

    def broken(self, _error: Exception) -> None:
        """Note no more after an error."""
        self._failed = True
        self._noted = []

    def take(self) -> list[float]:
        """Return the losses since the last call; waits for the devices."""
        noted, self._noted = self._noted, []
        with no_functions(), unnoticed():
            return [float(loss) for loss in noted]
