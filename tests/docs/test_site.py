"""The site builds without a warning, and what it shows comes from itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support import built_once

RESOURCES = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
"""Elements that make a browser load something, and where they say what."""

LINKS_THAT_LOAD_NOTHING = {"canonical", "prev", "next", "alternate"}


class Resources(HTMLParser):
    """Collects what a browser would load for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in LINKS_THAT_LOAD_NOTHING:
            self.found.append(given.get("href") or "")
        elif tag in RESOURCES:
            self.found += [given.get(RESOURCES[tag]) or "", *(given.get("srcset") or "").split()]
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style") or "")


def loaded_by(html: str) -> list[str]:
    parser = Resources()
    parser.feed(html)
    return [target for target in parser.found if target]


def without_tags(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def is_elsewhere(target: str) -> bool:
    return bool(re.match(r"\s*['\"]?(https?:)?//", target))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "faq.html", "reproduction.html", "outside/changelog.html"} <= {
        str(page.relative_to(site)) for page in pages
    }
    for page in pages:
        targets = loaded_by(page.read_text(encoding="utf-8"))
        assert any(target.endswith(".css") for target in targets), page
        assert [target for target in targets if is_elsewhere(target)] == [], page
    for sheet in site.rglob("*.css"):
        assert [url for url in re.findall(r"url\(([^)]*)\)", sheet.read_text("utf-8")) if is_elsewhere(url)] == [], (
            sheet
        )


@pytest.mark.slow
def test_the_reference_has_every_command_and_examples_as_code(site: Path) -> None:
    from codedfl.cli.app import app

    command_line = without_tags((site / "reference" / "command-line.html").read_text("utf-8"))
    for name, command in built_once(app).commands.items():  # type: ignore[attr-defined]
        assert f"codedfl {name}" in command_line
        for parameter in command.params:
            assert all(option in command_line for option in parameter.opts if option.startswith("--")), parameter.name
    data = (site / "reference" / "codedfl.data.html").read_text("utf-8")
    assert 'id="codedfl.data.Federation"' in data
    assert "<p>&gt;&gt;&gt;" not in data
    assert "&gt;&gt;&gt; " in without_tags(data)


@pytest.mark.slow
def test_links_into_and_out_of_docs_work_on_the_site(site: Path) -> None:
    contributing = (site / "outside" / "contributing.html").read_text("utf-8")
    assert 'href="../architecture.html#the-contracts"' in contributing
    assert 'href="outside/benchmarks.html"' in (site / "performance.html").read_text("utf-8")
    assert (site / "outside" / "hospitals.py").read_text() == (ROOT / "examples" / "hospitals.py").read_text()


def test_what_a_page_loads_is_found() -> None:
    html = """<link rel="stylesheet" href="https://fonts.example/x.css"><script src="//cdn.example/x.js"></script>
        <link rel="canonical" href="https://here.example/"><a href="https://there.example">a link</a>
        <img src="images/a.png"><div style="background: url('http://pictures.example/b.png')"></div>"""
    assert [target for target in loaded_by(html) if is_elsewhere(target)] == [
        "https://fonts.example/x.css",
        "//cdn.example/x.js",
        "'http://pictures.example/b.png'",
    ]
