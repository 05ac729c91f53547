"""The example notebook runs as it is, in a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that start a kernel
def test_the_notebook_runs_and_shows_progress_table_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells), "the notebook is kept without its outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, curve, result, outside, predicted = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    html = [output.data["text/html"] for output in first if "text/html" in output.get("data", {})]
    assert any("FedAvg" in page and "100/100" in page for page in html), "a bar for every scheme"
    assert "data:image/png;base64," in html[-1]
    assert "<th" in html[-1]
    assert all(output.output_type != "stream" for output in first), "nothing is written past the display"
    assert "everything_charged_s" in curve[0].data["text/html"]
    assert result[0].data["text/plain"].startswith("RunResult('ccfl', completed, score 0.9")
    assert "samples" in outside[0].data["text/plain"]
    assert predicted[0].data["text/plain"].startswith("array(['0', '1', ")
