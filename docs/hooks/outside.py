"""Pages of the site that lie outside of ``docs/``, and links to and from them that work on GitHub as well."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

KINDS = (".ipynb", ".md", ".py", ".toml")

PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "outside/changelog.md",
    "CONTRIBUTING.md": "outside/contributing.md",
    "LICENSE": "outside/license.txt",
    "benchmarks/README.md": "outside/benchmarks.md",
    **{
        str(path.relative_to(ROOT)): f"outside/{path.relative_to(ROOT / 'examples')}"
        for path in sorted((ROOT / "examples").rglob("*"))
        if path.suffix in KINDS
    },
}
"""Files outside of ``docs/`` that pages may link to, and where they are on the site. The home page stands for the README."""

LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of ``docs/``."""
    for source, place in PLACES.items():
        if place != "index.md":
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Make links that are right in the repository right on the site."""
    return with_links_of_the_site(markdown, page.file.src_uri)


def with_links_of_the_site(markdown: str, place: str) -> str:
    """Return a page with its links into and out of ``docs/`` as the site has them.

    Args:
        markdown: the page.
        place: where it is on the site.
    """
    source = next((ROOT / outside for outside, own in PLACES.items() if own == place != "index.md"), DOCS / place)

    def replaced(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        found = PLACES.get(os.path.relpath(target, ROOT))
        if found is None and target.is_relative_to(DOCS):
            found = str(target.relative_to(DOCS))
        if found is None:
            return match[0]
        return f"{match[1]}{os.path.relpath(found, Path(place).parent)}{match[3]}"

    return LINK.sub(replaced, markdown)
