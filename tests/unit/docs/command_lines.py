"""Finds ``slackwater …`` in documents, and what is wrong with such a line: the program is looked at, never run."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer.main

from slackwater.cli.main import app

NAME: Final = "slackwater"
_FENCE: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SHELLS: Final = {"sh", "bash", "shell", "console"}
_INLINE: Final = re.compile(r"`(slackwater [^`]+)`")
_ENDS: Final = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """One call of our command."""

    words: tuple[str, ...]
    """What follows the name."""
    whole: bool
    """Whether it can be typed as it stands; a mention in a sentence may leave arguments out."""


def command_lines(document: Path) -> list[CommandLine]:
    """Return every call in a document's shell blocks and in its sentences."""
    text = document.read_text()
    blocks = [block for language, block in _FENCE.findall(text) if language in _SHELLS]
    sentences = _FENCE.sub("", text)
    typed = [CommandLine(words=words, whole=True) for block in blocks for words in _calls(block)]
    return typed + [
        CommandLine(words=words, whole=False) for mention in _INLINE.findall(sentences) for words in _calls(mention)
    ]


def _calls(script: str) -> Iterator[tuple[str, ...]]:
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        while NAME in words:
            words = words[words.index(NAME) + 1 :]
            end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
            yield tuple(words[:end])
            words = words[end:]


def faults(line: CommandLine) -> list[str]:
    """Say what is wrong with a call: no such command, no such option, too many or too few arguments."""
    command: Any = typer.main.get_command(app)
    words = list(line.words)
    path = [NAME]
    while words and not words[0].startswith("-") and hasattr(command, "commands"):
        path.append(words.pop(0))
        command = command.commands.get(path[-1])
        if command is None:
            return [f"no command {' '.join(path)}"]
    if hasattr(command, "commands"):
        return [f"{' '.join(path)} needs a command"] if line.whole and words != ["--help"] else []
    options, arguments = _sorted(command.params)
    given, wrong = _arguments(words, options)
    least = sum(argument.required for argument in arguments)
    most = float("inf") if any(argument.nargs == -1 for argument in arguments) else len(arguments)
    if len(given) > most or (line.whole and len(given) < least):
        wrong.append(f"{' '.join(path)} takes {least} to {most:g} arguments, not {len(given)}")
    return wrong


def _sorted(params: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Part a command's options, by every name they have, from its arguments."""
    options = {name: each for each in params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    return options, [each for each in params if each.param_type_name == "argument"]


def _arguments(words: Sequence[str], options: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Part the arguments from the options; returns them and what is wrong with the options."""
    given, wrong = [], []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            given.append(word)
            continue
        name, equals, _ = word.partition("=")
        option = options.get(name)
        if option is None:
            wrong.append(f"no option {name}")
        elif not option.is_flag and not equals:
            if not rest:
                wrong.append(f"{name} needs a value")
            else:
                rest.pop(0)
    return given, wrong
