"""Command lines and environments as they stand in a log: by a list of what is allowed, not by guessing secrets.

In clear are numbers, booleans, a few words of training (dtypes, devices, backends), names of modules that exist,
existing paths, and the names of options. Everything else becomes a digest (`capture.log_format.private`). Nothing is
imported, no file is opened.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import PathFinder
from typing import Any

import torch

from .log_format import PRIVATE, private

__all__ = ["shown_command", "shown_value", "without_private"]

_WORDS = frozenset(
    [
        *["true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default"],
        *["train", "fit", "eval", "validate"],  # sub-commands
        # dtypes, besides those of torch; devices; backends of communication, of the compiler, of attention
        *["bf16", "fp16", "fp32", "fp64", "fp8", "tf32", "ieee", "highest", "high", "medium", "mean", "sum"],
        *["cpu", "gpu", "cuda", "mps", "xpu", "hip", "rocm", "meta", "nccl", "gloo", "mpi", "ucc", "fake"],
        *["eager", "aot_eager", "inductor", "cudagraphs", "max-autotune", "max-autotune-no-cudagraphs"],
        *["sdpa", "flash", "flash_attention_2", "flash_attention_3", "flex_attention", "mem_efficient"],
        *["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "selective", "linear", "cosine"],
        # arguments of operations
        *["tanh", "trunc", "floor", "prod", "amax", "amin", "multiply", "left", "right", "same", "valid", "reduced"],
        # environment variables of numerics
        *["ring", "tree", "simple", "ll", "ll128", "nvls", "collnet", "lazy", "pci_bus_id", "fastest_first", "version"],
        *["close", "spread", "master", "static", "dynamic", "guided", "cores", "threads", "sockets"],
        *["compatible", "sse4_2", "avx", "avx2", "avx512", "debug", "info", "warn", "warning", "error", "trace"],
        *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype)),
        *(name.lower() for name, value in vars(torch.optim).items() if isinstance(value, type)),
    ]
)
"""Values in clear, in upper or lower case. The list is short because each may be somebody's password."""
_ONE = r"[+-]?(?:(?:\d{1,20}(?:\.\d*){0,2}|\.\d+)(?:e[+-]?\d{1,4})?(?:[kmgt]i?b?|b|%|[mu]?s)?|inf|nan)"
_NUMBER = re.compile(rf"0x[\da-f]{{1,8}}|{_ONE}(?:[-x/]{_ONE})*", re.IGNORECASE | re.ASCII)
"""1e-3, 5-7, 2x4, 16GB, 12.8.1; four parts between dots are an address of the network."""
_BETWEEN = re.compile(r"[,:;] ?|[][()]")
_PART = r"(?:[A-Za-z]+(?:\d{1,4}[A-Za-z]{0,3}\d?)?|\d{1,4})"
_NAME = re.compile(rf"(?=[A-Za-z_].{{0,63}}\Z)_*{_PART}(?:[-_./]+{_PART})*_*")
"""Words and few digits, `adam-beta1`: not what random characters look like."""
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?::\w+(?:\.\w+)*)?", re.ASCII)
_CREDENTIALS = frozenset(
    [
        *["apikey", "auth", "authorization", "cookie", "cred", "creds", "credential", "credentials", "dsn"],
        *["passphrase", "passwd", "password", "passwords", "pw", "pwd", "secret", "secrets"],
    ]
)
_LAST_WORDS = frozenset(["key", "keys", "pass", "pin", "sig", "signature", "token"])
"""Credentials at the end of a name only: not `num_key_value_heads`, not `max_tokens`."""
_CREDENTIAL = re.compile(
    r"[@?]|://|(?:key|pass\w*|pw|secret|token)=|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}"
    r"|(?:hf|sk|pk|gh[opsu]|github_pat|glpat|xox[abp])[_-][\w-]{16,}",
    re.IGNORECASE,
)
"""Marks of a credential, which no path and no name has in it."""
_OWN_MODULES = frozenset(["capture", "numtui.capture"])
_MAX_LENGTH = 1000
_QUOTED = re.compile(r"\w{5,}")
"""Words that are looked for in other text; shorter ones are everywhere."""


def shown_command(words: list[str]) -> list[str]:
    """Return a command line with digests in place of what may be private; program and names of options are in clear."""
    own = _own_options(words)
    shown = list(words[: own + 1])
    option = "-m" if shown[-1:] == ["-m"] else ""
    for word in words[own + 1 :]:
        if _is_option(word):
            option = word
            shown.append(word)
        elif word[:1] == "-" and word[1:2].isalpha() and not _NUMBER.fullmatch(word):  # -pVALUE, -p=VALUE
            equals = 3 if word[2] == "=" else 2
            option, value = word[:2], word[equals:]
            shown.append(word[:equals] + shown_value(option, value, module=option == "-m"))
        else:
            if word.startswith("--"):
                option = ""
            shown.append(_shown_word(option, word))
            option = "" if option == "-m" else option  # all values of --tokens X Y
    return shown


def shown_value(name: str, value: str, *, module: bool = False) -> str:
    """Return a value, or its digest where it may be private.

    Args:
        name: of the option or variable; of a password not even a number is in clear.
        value: any text.
        module: a single word may name a module.
    """
    return value if not _is_credential(name) and _may_be_shown(value, module) else private(value)


def _shown_word(option: str, word: str) -> str:
    """Return a word behind an option; of `key=value` the key is in clear, and so on in its value."""
    shown = shown_value(option, word, module=option == "-m")
    key, equals, value = word.partition("=")
    # behind the first = of base64 is nothing else
    named = value.strip("=") and _is_name(key.removeprefix("--").lstrip("+~"))
    return key + equals + _shown_word(key, value) if named and shown != word and not _is_credential(option) else shown


def without_private(reason: str) -> str:
    """Return `ValueError: text`, the text as a digest where it quotes what is private of this process.

    That is, of its command line and its environment.
    """
    name, colon, text = reason.partition(": ")
    told = zip(sys.orig_argv, shown_command(sys.orig_argv), strict=True)
    values = [word[digest.start() :] for word, shown in told if (digest := PRIVATE.search(shown))]
    # a part of a value, for whoever reads it takes it apart
    values += [part for value in values for part in _QUOTED.findall(value)]
    values += [value for name, value in os.environ.items() if value in text and value != shown_value(name, value)]
    # the user's name is in every path
    home = os.path.expanduser("~")
    quoted = any(_QUOTED.search(value) and value in text and value not in home for value in values)
    return name + colon + (private(text) if quoted else text)


def _own_options(words: list[str]) -> int:
    """Return the place of the script in `python -u -m capture … -- script` or `numtui capture …`, else 0.

    What comes before are settings, and the script has been found.
    """
    at = next((k for k, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    module, name = words[at - 1 : at] == ["-m"], words[at] if at else ""
    ours = (module and name in _OWN_MODULES) or (
        words[at + 1 : at + 2] == ["capture"] and (name if module else os.path.basename(name)) == "numtui"
    )
    return words.index("--") + 1 if ours and "--" in words[:-1] else 0


def _is_option(word: str) -> bool:
    """True for `-`, `--`, `--name`, `-p`, `-lr`; a longer word with one dash has a value at its end."""
    if word.startswith("--"):
        return word == "--" or _is_name(word[2:])
    return word == "-" or (len(word) in (2, 3) and word[0] == "-" and word[1:].isalpha())


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and _CREDENTIAL.search(text) is None


def _is_credential(name: str) -> bool:
    """True for `--hf_token`, `wandb.apiKey` and `DB_PW`, not for `tokenizer` and `max_tokens`."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    return not _CREDENTIALS.isdisjoint(words) or (bool(words) and words[-1] in _LAST_WORDS)


def _may_be_shown(value: str, module: bool) -> bool:
    if len(value) > _MAX_LENGTH:
        return False
    items = _BETWEEN.split(value)
    if all(not item or item.lower() in _WORDS or _NUMBER.fullmatch(item) for item in items):
        return True
    if _is_module(value, module):
        return True
    # the script may have changed its folder
    places = value, os.path.join(os.environ.get("PWD", ""), value)
    return _CREDENTIAL.search(value) is None and any(map(os.path.exists, places))


def _is_module(text: str, single: bool) -> bool:
    """True if a text names a module, or what one that is loaded has (`package.module:function`); imports nothing."""
    if not _MODULE.fullmatch(text) or (text.isidentifier() and not single):
        return False
    parts = text.replace(":", ".").split(".")
    path: Any = None
    for k, part in enumerate(parts):
        loaded = sys.modules.get(".".join(parts[: k + 1]))
        if loaded is not None:
            # not getattr: modules may load others when asked
            path = vars(loaded).get("__path__", ())
            continue
        held: Any = sys.modules.get(".".join(parts[:k]))
        if held is not None and part in vars(held):
            return k == len(parts) - 1
        try:
            spec = PathFinder.find_spec(".".join(parts[: k + 1]), path)
            path = [] if spec is None else list(spec.submodule_search_locations or ())
        except Exception:  # noqa: BLE001 finders are other people's code
            return False
        if spec is None:
            return False
    return True
