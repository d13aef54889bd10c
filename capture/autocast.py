"""Autocast, noted where a script switches it: within an operation that torch casts for, it is off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch

from .event import Event
from .mode_stack import never_compile

__all__ = ["Autocast", "autocast_changes", "autocast_settings", "listen"]

Autocast = dict[str, str]
"""Device type → dtype, of devices with autocast on."""

_SWITCHES = ("set_autocast_enabled", "set_autocast_dtype")
"""Functions of torch that `torch.autocast` calls when it is entered and left."""


def autocast_settings() -> Autocast:
    """Return what is on now, outside of any operation."""
    devices = ("cuda", "cpu")
    return {
        device: str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        for device in devices
        if torch.is_autocast_enabled(device)
    }


def listen(note: Callable[[Autocast], None]) -> Callable[[], None]:
    """Tell `note` what is on, now and after every switch, until what this returns is called."""
    stops = [_replaced(name, lambda: note(autocast_settings())) for name in _SWITCHES]
    note(autocast_settings())

    def stop() -> None:
        for one in stops:
            one()

    return stop


def _replaced(name: str, switched: Callable[[], None]) -> Callable[[], None]:
    """Replace a function of torch by one that calls `switched` afterwards; return what puts it back."""
    own: Callable[..., Any] = getattr(torch, name)

    def switch(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        switched()
        return result

    def stop() -> None:
        if getattr(torch, name) is switch:  # else somebody has replaced it since
            setattr(torch, name, own)

    with suppress(AttributeError):  # it would be compiled, and work as well
        never_compile(switch)
    setattr(torch, name, switch)
    return stop


def autocast_changes(events: Iterable[Event]) -> Iterator[tuple[str, Autocast]]:
    """Yield the keys from which on something else was on, and what; before the first, nothing."""
    last: Autocast = {}
    for event in events:
        if event.autocast != last:
            last = event.autocast
            yield event.key, last
