"""Running the commands and cells of a page as a reader would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, Step

COLUMNS = "80"
"""Width of the terminal in which pages are written."""


def prepared(folder: Path) -> Path:
    """Return a folder after putting the example scripts into it, as a reader would who has saved them."""
    for script in (ROOT / "examples").glob("*.py"):
        shutil.copy(script, folder)
    return folder


def run_command(command: str, folder: Path) -> str:
    """Run a command of the shell in a folder, and return what it prints to standard output."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("CODEDFL_", "PYTEST_"))},
        **{"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONIOENCODING": "utf-8"},
        **{"COLUMNS": COLUMNS, "NO_COLOR": "1"},
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_cells(steps: Sequence[Step], folder: Path) -> list[str]:
    """Execute cells in one notebook with a kernel of its own, and return what each prints or returns."""
    import nbformat
    from nbclient import NotebookClient

    v4: Any = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(step.code) for step in steps])
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return [_printed(cell.outputs) for cell in notebook.cells]


def _printed(outputs: Sequence[dict[str, Any]]) -> str:
    """Return what a cell wrote to standard output, and what it returned, as text."""
    parts: list[str] = []
    for output in outputs:
        if output["output_type"] == "stream" and output["name"] == "stdout":
            parts.append(output["text"])
        elif output["output_type"] == "execute_result":
            parts.append(output["data"]["text/plain"])
    return "\n".join(part.rstrip("\n") for part in parts)
