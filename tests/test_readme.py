"""The README says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    main, test = blocks("sh")
    assert test.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert test.strip() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "codedfl run" in main


def test_the_python_examples_run_and_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    estimator, comparison = blocks("python")
    for example in (estimator, comparison):
        assert len([line for line in example.splitlines() if line.strip()]) <= 15
        exec(compile(example, "README.md", "exec"), {})
    covers, *printed = capsys.readouterr().out.splitlines()
    assert covers.startswith("everything ")
    assert [line.split()[0] for line in printed] == ["FedAvg", "CCFL"]


def test_the_example_of_the_theory_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "theory.md").read_text("utf-8"), flags=re.DOTALL)
    exec(compile(example, "theory.md", "exec"), {})
    assert "code_floor" in capsys.readouterr().out


def test_every_link_and_picture_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                path, _, anchor = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                assert file.exists(), f"{page.name}: {target}"
                if anchor:
                    titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
                    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                    assert anchor in slugs, f"{page.name}: {target}"


def test_the_examples_are_valid_configurations() -> None:
    from codedfl import load_config

    examples = sorted((ROOT / "examples").glob("*.toml"))
    assert examples
    for example in examples:
        config = load_config(example)
        assert config.coding.coded_samples == 10_000
