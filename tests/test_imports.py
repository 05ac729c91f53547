"""Modules depend on each other in one direction."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

LAYERS = (
    ("cli",),
    ("paper", "planning", "audits", "federation", "report", "estimators", "tracking"),
    ("experiment",),
    ("results",),
    ("plotting", "models", "config"),
    ("schemes", "theory", "incentive"),
    ("training",),
    ("uploads",),
    ("setting",),
    ("losses", "privacy"),
    ("coding", "fleet", "data"),
    ("native",),
)
"""A package imports from lower layers, from itself and from the top level's own modules."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((SOURCE / "codedfl").rglob("*.py"))}


@functools.cache
def imported_by(path: Path) -> frozenset[str]:
    """Return the modules of this project that a file imports, wherever in it, but not what only a type checker imports."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    type_checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else str(node.module)


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / "codedfl" / parts[1]).is_dir() else ""


def test_there_is_no_cycle_of_imports() -> None:
    """Deferred imports count. The package a module lies in does not: its ``__init__`` only gathers names."""
    graph = {
        name: {other for other in imported_by(path) if other != name and not name.startswith(f"{other}.")}
        for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' -> '.join(error.args[1])}")


def test_packages_form_layers() -> None:
    height = {package: -level for level, layer in enumerate(LAYERS) for package in layer}
    wrong = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        for other in imported_by(path)
        if (own := package_of(name))
        and (theirs := package_of(other))
        and own != theirs
        and not (
            height[theirs] < height[own] or (own, theirs) in {("plotting", "models", "config"), ("theory", "training")}
        )
    ]
    assert not wrong


def test_the_top_level_imports_no_package() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        if not package_of(name) and name not in ("codedfl", "codedfl.__main__")
        for other in imported_by(path)
        if package_of(other)
    ]
    assert not wrong


def test_other_packages_import_what_a_package_exports() -> None:
    """A private module is the business of its own package."""
    wrong = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        for other in imported_by(path)
        if package_of(other) and package_of(name) != package_of(other) and other.rsplit(".", 1)[1].startswith("_")
    ]
    assert not wrong


FLOWER = "codedfl.federation.transport.flower"
PUBLIC_FLOWER = ("flwr.app", "flwr.serverapp")
PRIVATE_FLOWER = {
    "flwr.cli.build",
    "flwr.common.serde",
    "flwr.proto",
    "flwr.supercore.control",
    "flwr.supercore.inflatable.inflatable_object",
    "flwr.supercore.inflatable.inflatable_utils",
    "flwr.supernode.fleet_http_client",
    "flwr.supernode.node_auth_http_interceptor",
}
"""What is used of Flower beside its public interface; the docstring of its transport says why."""


def test_only_its_transport_imports_flower_and_little_that_is_private() -> None:
    imported = {name: _all_imports(path) for name, path in MODULES.items()}
    flower = {name: {other for other in others if other.split(".")[0] == "flwr"} for name, others in imported.items()}
    assert {name for name, others in flower.items() if others and not name.startswith(FLOWER)} == set()
    private = {other for others in flower.values() for other in others if not other.startswith(PUBLIC_FLOWER)}
    assert private == PRIVATE_FLOWER


def _all_imports(path: Path) -> set[str]:
    """Return the modules that a file imports from, of whatever project, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return modules | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
