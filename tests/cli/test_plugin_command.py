from __future__ import annotations

import json

import pytest

from codedfl.cli.plugin_command import plugins
from codedfl.plugins import Plugin

OFFERED = {
    "scheme": (
        Plugin("scheme", "scfl", "greedy 1.0", "json:loads", "of greedy 1.0 is left out, as codedfl has a scheme"),
        Plugin("scheme", "[odd]", "broken 2.0", "no_such_module:x"),
    ),
    "dataset": (Plugin("dataset", "rings", "good 3.0", "json:loads"),),
    "fleet": (),
}


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.plugins.plugins", lambda kind, built_in=(): OFFERED[kind])  # noqa: ARG005
    monkeypatch.setattr("codedfl.cli.plugin_command.plugins_of", lambda kind, built_in: OFFERED[kind])  # noqa: ARG005


@pytest.mark.usefixtures("offered")
def test_every_plugin_is_listed_with_its_package_and_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    plugins()
    text = capsys.readouterr().out
    assert "ready" in text
    assert "[odd]" in text
    assert "codedfl has a scheme" in " ".join(text.replace("│", " ").split())


@pytest.mark.usefixtures("offered")
def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    plugins(json_=True)
    first, second, third = json.loads(capsys.readouterr().out)
    assert first["problem"] == "the scheme of greedy 1.0 is left out, as codedfl has a scheme"
    assert "of the package broken 2.0 cannot be loaded" in second["problem"]
    assert third == {"kind": "dataset", "name": "rings", "package": "good 3.0", "target": "json:loads", "problem": ""}


def test_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    plugins()
    assert capsys.readouterr().out == "no installed package adds a scheme, a dataset or a fleet\n"
