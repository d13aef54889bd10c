"""Paths as the user typed them: expanded and looked up in one place, where a mistake becomes a sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from matchers.errors import InputError

__all__ = ["small_text", "status_of", "typed_path"]

_ADVICE = {
    errno.EACCES: ": a folder on the way cannot be searched; choose another, or change its permissions",
    errno.ENAMETOOLONG: "; choose a shorter one",
    errno.ELOOP: "; name the file that is meant",
    errno.ENOTDIR: "; a file lies where a folder is needed",
}

_MAX_SHOWN = 80
_MAX_TEXT = 4 << 20


def typed_path(text: str, *, expand: bool = False) -> Path:
    """Return the path that a text names, which need not exist; every question about it has an answer.

    Args:
        expand: read `~` and `~user`, as a shell does.

    Raises:
        InputError: no file can have this path, or nobody may know whether one has.
    """
    path = Path(text)
    try:
        path = path.expanduser() if expand else path
    except RuntimeError:
        raise InputError(
            f"{text}: there is no user {path.parts[0]}; write the folder out, or ./ before the name"
        ) from None
    status_of(path)
    return path


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Return the status of a file, links followed; None where there is none.

    Raises:
        InputError: as `typed_path`.
    """
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{_brief(os.fspath(path))}: {error.strerror or error}{_ADVICE.get(error.errno or 0, '')}"
        ) from None
    except ValueError as error:  # a zero byte, or half a character
        raise InputError(f"{_brief(os.fspath(path))!r}: is no path ({error})") from None


def small_text(path: Path, what: str) -> str:
    """Return the text of a file that a person wrote.

    Raises:
        InputError: it is far too large for one, or a device.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_TEXT + 1)
    if len(data) > _MAX_TEXT:
        raise InputError(f"{_brief(str(path))}: larger than {_MAX_TEXT >> 20} MiB: this is no {what}")
    return data.decode("utf-8")


def _brief(path: str) -> str:
    """Shorten a long path, so that a line still has room for what is wrong with it."""
    return path if len(path) <= _MAX_SHOWN else f"{path[: _MAX_SHOWN // 2]}…{path[-_MAX_SHOWN // 2 :]}"
