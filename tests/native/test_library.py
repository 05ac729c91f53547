from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import native
from codedfl.native import _library as library
from codedfl.native import build
from codedfl.streams import Streams
from codedfl.training.engine._sampling import sample_batches
from tests.gradients import gradient
from tests.native.needs import needs_kernel

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh_library() -> Iterator[None]:
    library.library.cache_clear()
    yield
    library.library.cache_clear()


def one_update() -> np.ndarray:
    rng = np.random.default_rng(0)
    X, Y, W = rng.standard_normal((90, 30)), rng.standard_normal((90, 4)), rng.standard_normal((30, 4))
    batches = sample_batches(Streams(1), "batch", 90, 20, 5, device=2, round=8)
    return gradient(X, Y, W, batches, scale=4.5, step_size=1e-3, make_up=0.2)


@needs_kernel
def test_the_environment_variable_forces_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = one_update()
    assert native.backend() == "native"
    monkeypatch.setenv("CODEDFL_NATIVE", "0")
    library.library.cache_clear()
    assert native.backend() == "numpy"
    assert not native.available()
    np.testing.assert_allclose(one_update(), compiled, rtol=1e-11, atol=1e-11)


def test_without_a_library_numpy_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CODEDFL_KERNEL", raising=False)
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    assert native.backend() == "numpy"
    assert np.isfinite(one_update()).all()


def test_a_broken_library_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"not a library")
    monkeypatch.delenv("CODEDFL_KERNEL", raising=False)
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "broken.so")
    assert native.backend() == "numpy"


@needs_kernel
def test_the_environment_variable_names_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    copy.write_bytes(library.LIBRARY.read_bytes())
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    monkeypatch.setenv("CODEDFL_KERNEL", str(copy))
    assert native.backend() == "native"


@needs_kernel
def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "VERSION", library.VERSION + 1)
    assert native.backend() == "numpy"


def test_builds_where_the_package_looks() -> None:
    assert build.LIBRARY == library.LIBRARY


@pytest.mark.slow
@pytest.mark.skipif(build.find_compiler() is None, reason="there is no C compiler")
def test_compiles(tmp_path: Path) -> None:
    assert build.compile_kernel(tmp_path / "kernel.so") is None
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.so"]


@pytest.mark.parametrize(("compiler", "problem"), [("/nonexistent", "no C compiler found"), ("false", "false failed")])
def test_a_missing_or_failing_compiler_is_reported(
    compiler: str, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", compiler)
    said = build.compile_kernel(tmp_path / "kernel.so")
    assert said is not None
    assert said.startswith(problem)
    assert not list(tmp_path.iterdir())


def load_hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load hatch_build.py, with a stand-in for hatchling's base class, which the tests do not need."""
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("compiler", ["/nonexistent", pytest.param(None, marks=pytest.mark.slow)])
def test_the_build_hook_survives_a_missing_compiler(
    compiler: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if compiler is None and build.find_compiler() is None:
        pytest.skip("there is no C compiler")
    if compiler:
        monkeypatch.setenv("CC", compiler)
    folder = tmp_path / "src" / "codedfl" / "native"
    folder.mkdir(parents=True)
    for name in ("build.py", "kernel.c", "steps.h"):
        (folder / name).write_bytes((build.FOLDER / name).read_bytes())
    said: list[str] = []
    hook = load_hook(monkeypatch).KernelBuildHook()
    hook.root, hook.app = str(tmp_path), types.SimpleNamespace(display_warning=said.append)
    data: dict[str, Any] = {"artifacts": [], "pure_python": True, "infer_tag": False}
    hook.initialize("standard", data)
    if compiler:
        assert data == {"artifacts": [], "pure_python": True, "infer_tag": False}
        assert said == ["codedfl will run on numpy alone, without its compiled kernel: no C compiler found."]
    else:
        assert data == {"artifacts": ["src/codedfl/native/_kernel.so"], "pure_python": False, "infer_tag": True}
        assert (folder / "_kernel.so").exists()
        assert not said
