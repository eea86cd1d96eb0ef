"""Whatever the documents tell people to type can be typed: the command, its options and its arguments exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.unit.docs.command_lines import CommandLine, command_lines, faults

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_command_of_a_document_exists_with_its_options(document: Path) -> None:
    wrong = {" ".join(line.words): found for line in command_lines(document) if (found := faults(line))}

    assert wrong == {}


@pytest.mark.parametrize("name", ["README.md", "docs/operating.md", "deploy/README.md"])
def test_commands_are_found_where_there_are_some(name: str) -> None:
    assert any(line.whole for line in command_lines(ROOT / name))


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_python_program_of_a_document_is_python(document: Path) -> None:
    for program in re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        ast.parse(program)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("run in.jsonl", []),
        ("run in.jsonl --output out.jsonl --metadata a=b", []),
        ("run --output=out.jsonl -", []),
        ("worker drain gpu-1 --undo", []),
        ("file delete file-1 file-2 file-3", []),
        ("batch --help", []),
        ("rum in.jsonl", ["no command slackwater rum"]),
        ("batch", ["slackwater batch needs a command"]),
        ("batch lsit", ["no command slackwater batch lsit"]),
        ("run in.jsonl --ouput out.jsonl", ["no option --ouput", "slackwater run takes 1 to 1 arguments, not 2"]),
        ("run in.jsonl --output", ["--output needs a value"]),
        ("run", ["slackwater run takes 1 to 1 arguments, not 0"]),
        ("worker drain gpu-1 gpu-2", ["slackwater worker drain takes 1 to 1 arguments, not 2"]),
    ],
)
def test_what_is_wrong_with_a_line_is_said(words: str, found: list[str]) -> None:
    assert faults(CommandLine(words=tuple(words.split()), whole=True)) == found


def test_a_mention_in_a_sentence_may_leave_arguments_out() -> None:
    assert faults(CommandLine(words=("run",), whole=False)) == []


def test_lines_are_taken_apart_as_a_shell_does(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "Try `slackwater up`, not `slackwater.cli`.\n\n"
        "```sh\n"
        "$ NAME=1 slackwater run 'my file' > out.jsonl  # slackwater comment\n"
        "docker compose exec api slackwater key list && slackwater doctor\n"
        "```\n\n"
        "```json\nslackwater nothing\n```\n"
    )

    assert command_lines(document) == [
        CommandLine(words=("run", "my file"), whole=True),
        CommandLine(words=("key", "list"), whole=True),
        CommandLine(words=("doctor",), whole=True),
        CommandLine(words=("up",), whole=False),
    ]
