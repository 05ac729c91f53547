"""What holds for every command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from codedfl.cli.app import app
from tests.support import Cli, built_once

ROOT: Any = built_once(app)

WITHOUT_JSON = {"federation", "federation client"}
"""A group without work of its own, and a process that answers until it is stopped and logs what it does."""


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with its path."""
    if path:
        yield " ".join(path), command
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from walk(below, (*path, name))


COMMANDS = dict(walk(ROOT))
EVERY = pytest.mark.parametrize("name", COMMANDS)


def parsed(words: list[str]) -> Any:
    """Return the command that words on the command line lead to, with its options parsed."""
    command, context = ROOT, None
    while True:
        context = command.make_context(command.name, words, parent=context)
        words = [*context._protected_args, *context.args]
        if not getattr(command, "commands", None) or not words:
            return command
        _, command, words = command.resolve_command(context, words)


@EVERY
def test_help_has_an_example_that_parses(name: str) -> None:
    (example,) = re.findall(r"^Example: codedfl (.*)$", COMMANDS[name].help, flags=re.MULTILINE)
    words = shlex.split(re.split(r" [>|] ", example)[0])
    command = parsed(words)
    assert command is COMMANDS[name] or command in getattr(COMMANDS[name], "commands", {}).values()


@EVERY
def test_h_shows_a_sentence_the_example_and_a_text_for_every_option(cli: Cli, name: str) -> None:
    shown = cli(*name.split(), "-h")
    assert shown.code == 0, shown.err
    assert "Example: codedfl" in shown.out
    assert COMMANDS[name].help.split("\n\n")[0].rstrip().endswith((".", "!"))
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name} --{parameter.name}"


@EVERY
def test_an_unknown_option_exits_with_2_in_one_sentence(cli: Cli, name: str) -> None:
    cli(*name.split(), "--nonsense").assert_refused("No such option", "--nonsense", f"See codedfl {name} --help")


@EVERY
def test_every_command_has_json(name: str) -> None:
    options = {flag for parameter in COMMANDS[name].params for flag in parameter.opts}
    assert ("--json" in options) != (name in WITHOUT_JSON)


@pytest.mark.parametrize(
    "arguments",
    [
        ("config",),
        ("config", "--dataset", "mnist"),
        ("datasets",),
        ("schemes",),
        ("plugins",),
        ("privacy", "--coded-samples", "1000", "--epsilon", "4", "--delta", "1e-5"),
        ("privacy", "--coded-samples", "1000", "--noise-variance", "0", "--delta", "1e-5"),
        ("privacy", "--updates", "10", "--delta", "1e-5", "--noise-multiplier", "0"),
        ("contract", "--budget", "100"),
        ("contract", "table"),
        ("stackelberg", "--reward", "100"),
        ("paper", "list"),
    ],
    ids=" ".join,
)
def test_json_is_one_line_without_anything_that_json_lacks(cli: Cli, arguments: tuple[str, ...]) -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    result = cli(*arguments, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    assert isinstance(json.loads(result.out, parse_constant=refuse), dict | list)


def test_every_command_is_in_a_panel() -> None:
    assert all(command.rich_help_panel for command in ROOT.commands.values())


def completions(cli: Cli, line: str) -> list[str]:
    """Return what bash is offered at the end of a line."""
    cli.monkeypatch.setenv("_CODEDFL_COMPLETE", "complete_bash")
    cli.monkeypatch.setenv("COMP_WORDS", line)
    cli.monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return cli().out.splitlines()


def test_a_shell_completes_commands_options_and_values(cli: Cli) -> None:
    assert completions(cli, "codedfl ru") == ["run"]
    assert completions(cli, "codedfl run --coded") == ["--coded-samples"]
    assert completions(cli, "codedfl run --scheme scfl") == ["scfl-fixed", "scfl", "scfl-private"]
    assert completions(cli, "codedfl run --dataset mni") == ["mnist"]
    assert completions(cli, "codedfl run --set training.loc") == ["training.local_steps="]


def test_completion_can_be_installed_and_the_version_is_printed(cli: Cli) -> None:
    assert "--install-completion" in cli("--help").out
    assert re.fullmatch(r"codedfl \d+\.\d+\.\d+\S*\n", cli("--version").out)
