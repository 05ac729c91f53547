"""A wheel works where there is no repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import CLI_SMALL

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of a wheel, built from a copy since a build compiles the kernel in the source."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    build = ["wheel", "-q", "--no-deps", "--wheel-dir", str(source / "dist"), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, cwd=source)
    (wheel,) = (source / "dist").glob("codedfl-*.whl")
    packed = ZipFile(wheel)
    files = [path.relative_to(source / "src") for path in (source / "src" / "codedfl").rglob("*") if path.is_file()]
    missing = {path.as_posix() for path in files if "__pycache__" not in path.parts} - {*packed.namelist()}
    assert not missing
    packed.extractall(place)
    return place


def codedfl(installed: Path, folder: Path, *arguments: str) -> str:
    """Run the wheel's own command line in another folder."""
    start = (
        "import sys, codedfl.cli; sys.argv[0] = 'codedfl'; print(codedfl.__file__, file=sys.stderr); codedfl.cli.main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    run = subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.startswith(str(installed)), "the repository was imported instead"
    return run.stdout


@pytest.mark.slow
def test_a_wheel_has_every_file_and_runs_in_any_folder(installed: Path, tmp_path: Path) -> None:
    assert "Example: codedfl run" in codedfl(installed, tmp_path, "run", "--help")
    summary = json.loads(codedfl(installed, tmp_path, "run", *CLI_SMALL, "--json", "--out", "first"))
    assert [scheme["status"] for scheme in summary["schemes"]] == ["completed", "completed"]
    assert {"summary.json", "curves.png", "config.toml"} <= {path.name for path in (tmp_path / "first").iterdir()}
