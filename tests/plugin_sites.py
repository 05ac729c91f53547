"""Packages that are put on the path as an installer would leave them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

TEMPLATE = Path(__file__).parents[1] / "examples" / "plugin"

Offers = Mapping[str, Mapping[str, str]]
"""Entry points by kind and name."""


def dist_info(site: Path, package: str, offers: Offers) -> None:
    """Write what an installer leaves behind of a package."""
    folder = site / f"{package.replace('-', '_')}-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in offers.items()
    )
    (folder / "entry_points.txt").write_text("\n".join(sections))


def template_site(site: Path) -> Path:
    copytree(TEMPLATE / "src", site)
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    dist_info(site, project["name"], project["entry-points"])
    return site
