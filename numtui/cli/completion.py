"""Completion for bash, zsh and fish, generated from the parsers of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from numtui.cli.parser_model import Argument, Command

__all__ = ["SHELLS", "completion"]

SHELLS = ("bash", "zsh", "fish")


def completion(shell: str, commands: Sequence[Command]) -> str:
    """The script that makes a shell complete `numtui`; `shell` is one of `SHELLS`."""
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)
    return "\n".join(lines) + "\n"


def _words(commands: Sequence[Command]) -> list[str]:
    """The first words of the commands."""
    return list(dict.fromkeys(c.name.split(" ")[0] for c in commands if c.name))


def _flags(command: Command) -> list[str]:
    return [flag for option in command.options for flag in option.flags]


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield "# bash completion for numtui: put this into ~/.local/share/bash-completion/completions/numtui"
    yield "_numtui() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" flags="" words=""'
    yield "    COMPREPLY=()"
    yield '    case " ${COMP_WORDS[*]:1:COMP_CWORD-1} " in'
    for command in sorted((c for c in commands if c.name), key=lambda c: -len(c.name)):
        yield f'        " {command.name} "*) command={shlex.quote(command.name)} ;;'
    yield "    esac"
    yield '    case "$command:$before" in'
    for command in commands:
        for option in command.options:
            if option.value:
                pattern = "|".join(f'"{command.name}:{flag}"' for flag in option.flags)
                yield f"        {pattern}) {_bash_values(option)}; return ;;"
    yield "    esac"
    yield '    case "$command" in'
    for command in commands:
        choices = " ".join(choice for a in command.positional for choice in a.choices)
        words = " ".join(_words(commands)) if not command.name else choices
        yield f'        {shlex.quote(command.name)}) flags="{" ".join(_flags(command))}" words="{words}" ;;'
    yield "    esac"
    yield '    [[ $COMP_CWORD -gt 1 && -z $command ]] && words=""'
    nested: dict[str, list[str]] = {}
    for first, second in (c.name.split(" ") for c in commands if " " in c.name):
        nested.setdefault(first, []).append(second)
    for first, seconds in nested.items():
        yield f'    [[ $COMP_CWORD -eq 2 && ${{COMP_WORDS[1]}} == {first} ]] && words="{" ".join(seconds)}"'
    yield '    if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")'
    yield '    else mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; compgen -f -- "$word"); fi'
    yield "}"
    yield "complete -o filenames -F _numtui numtui"


def _bash_values(option: Argument) -> str:
    if option.choices:
        return f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.choices)}" -- "$word")'
    return 'mapfile -t COMPREPLY < <(compgen -f -- "$word")' if option.is_path else ":"


def _zsh(commands: Sequence[Command]) -> Iterator[str]:
    yield "#compdef numtui"
    yield "# zsh completion for numtui: put this into a folder of $fpath, as _numtui"
    yield "_numtui() {"
    yield "    local -a words_of"
    yield f"    words_of=({' '.join(_words(commands))})"
    yield '    case "${words[2]} ${words[3]}" in'
    for command in sorted(commands, key=lambda c: (-c.name.count(" "), not c.name)):
        if command.name:
            pattern = f'"{command.name}"*' if " " in command.name else f'"{command.name} "*'
            yield f"        {pattern}) shift {command.name.count(' ') + 1} words"
            yield f"            (( CURRENT -= {command.name.count(' ') + 1} ))"
            yield f"            _arguments {_zsh_specs(command)} ;;"
    [explorer] = [c for c in commands if not c.name]
    yield f"        *) (( CURRENT == 2 )) && compadd -a words_of; _arguments {_zsh_specs(explorer)} ;;"
    yield "    esac"
    yield "}"
    yield '_numtui "$@"'


def _zsh_specs(command: Command) -> str:
    specs = []
    for argument in command.arguments:
        about = argument.help.replace("[", "(").replace("]", ")").replace(":", " -")
        action = f"({' '.join(argument.choices)})" if argument.choices else "_files" if argument.is_path else ""
        if not argument.flags:
            specs.append(f"{'*' if argument.repeated else ''}:{about}:{action}")
        for flag in argument.flags:
            specs.append(f"{flag}[{about}]" + (f":{argument.value}:{action}" if argument.value else ""))
    return " ".join(map(shlex.quote, specs))


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    yield "# fish completion for numtui: put this into ~/.config/fish/completions/numtui.fish"
    firsts = " ".join(_words(commands))
    for word in _words(commands):
        about = next(c.about for c in commands if c.name.split(" ")[0] == word).split("\n")[0]
        yield f"complete -c numtui -n __fish_use_subcommand -a {word} -d {shlex.quote(about)}"
    for command in commands:
        first, _, second = command.name.partition(" ")
        seen = f"__fish_seen_subcommand_from {first}" if first else f"not __fish_seen_subcommand_from {firsts}"
        if second:
            yield f"complete -c numtui -n {shlex.quote(seen)} -a {second}"
            seen += f"; and __fish_seen_subcommand_from {second}"
        for option in command.options:
            flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags)
            value = ""
            if option.choices:
                value = f" -xa {shlex.quote(' '.join(option.choices))}"
            elif option.value:
                value = " -r" if option.is_path else " -x"
            yield f"complete -c numtui -n {shlex.quote(seen)} {flags}{value} -d {shlex.quote(option.help)}"
