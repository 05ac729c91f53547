"""Compiles the kernel while a wheel or an editable installation is built; without a C compiler, the package is pure Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = "src/codedfl/native"


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the shared library to what is built, if it can be compiled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (the same for every version)
        """Compile, and mark the wheel as one for this platform."""
        spec = importlib.util.spec_from_file_location("kernel_build", Path(self.root, NATIVE, "build.py"))
        assert spec is not None
        assert spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        problem = build.compile_kernel()
        if problem:
            self.app.display_warning(f"codedfl will run on numpy alone, without its compiled kernel: {problem}.")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"{NATIVE}/{build.LIBRARY.name}")
