"""Every command on a page exists with the options that it is given, and sets fields that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from codedfl.config import load_config, parse_override
from tests.docs.pages import DOCS, ROOT, blocks
from tests.support import built_once, refusal_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def codedfl_commands(page: Path) -> list[list[str]]:
    """Return the arguments of every call of codedfl in the blocks of a page."""
    found = []
    for _, language, content, _ in blocks(page):
        if language in ("sh", "console"):
            for line in content.replace("\\\n", " ").splitlines():
                text = re.sub(r"^\$ ", "", line.strip())
                if language == "sh" or line.startswith("$ "):
                    for part in re.split(r" \| | && | > ", text):
                        words = shlex.split(part, comments=True)
                        if words and words[0].rsplit("/", 1)[-1] == "codedfl":
                            found.append(words[1:])
    return found


def parsed(arguments: Sequence[str]) -> None:
    """Parse a command without running it, as the command line does.

    Raises:
        Exception: click's, or typer's copy of it, if an option or command does not exist.
    """
    from codedfl.cli.app import app

    command, rest, parent = built_once(app), list(arguments), None
    while rest and (inner := getattr(command, "commands", None)) and not rest[0].startswith("-"):
        assert rest[0] in inner, f"No such command {rest[0]!r}"
        # A command keeps the help option of its first context, which inherits its names.
        parent = command.context_class(command, parent, command.name, **command.context_settings)
        command = inner[rest.pop(0)]
    command.make_context(command.name, rest, parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for arguments in codedfl_commands(page):
        try:
            parsed(arguments)
        except Exception as error:
            pytest.fail(f"codedfl {shlex.join(arguments)}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_fields_that_a_page_sets_exist(page: Path) -> None:
    for command, *rest in codedfl_commands(page):
        for option, value in pairwise(rest):
            if option == "--set" and command != "federation":
                refusal = refusal_of(partial(load_config, overrides=[parse_override(value)]))
                assert "no such key" not in refusal, f"{page.name}: {refusal}"


def test_a_wrong_option_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["run", "--no-such-option"])
    with pytest.raises(AssertionError, match="No such command"):
        parsed(["no-such-command"])
    with pytest.raises(AssertionError, match="No such command"):
        parsed(["federation", "no-such-command"])


def test_commands_are_found_in_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\ncodedfl run --seed 1 | less  # why\nA=1 other\n```\n```console\n$ codedfl plan \\\n  --json\nrun\n```\n"
    )
    assert codedfl_commands(page) == [["run", "--seed", "1"], ["plan", "--json"]]
