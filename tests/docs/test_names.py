"""Modules, classes, functions, options and files that pages and docstrings name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from codedfl.config import Config
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig
from tests.docs.pages import DOCS, ROOT
from tests.test_imports import LAYERS

SOURCE = ROOT / "src" / "codedfl"
CHANGELOG = ROOT / "CHANGELOG.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    CHANGELOG,
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
CODE = [path for folder in ("src", "tests", "benchmarks", "examples", "docs") for path in (ROOT / folder).rglob("*.py")]
PACKAGES = sorted(init.parent.name for init in SOURCE.glob("*/__init__.py"))
FORMER = ("curvature", "private")
"""Packages that there were."""

FULL = re.compile(r"(?<![\w/.@-])codedfl(?:\.[A-Za-z_]\w*)+")
SHORT = re.compile(rf"(?<![\w./-])(?:{'|'.join((*PACKAGES, *FORMER))})(?:\.[A-Za-z_]\w*)+(?![\w/])")
FILE = re.compile(r"(?<![\w./-])(?:[\w-]+/)*[\w*-]+\.py\b|(?<![\w./-])(?:src|tests|benchmarks|examples)/[\w./-]*\w/?")
METHOD = re.compile(r"(?<![\w.])([A-Z]\w+)\.([a-z_]\w*)\b")
SUFFIXES = ("csv", "html", "jsonl", "json", "md", "npz", "png", "py", "toml")
GROUPS = ("codedfl.schemes", "codedfl.datasets", "codedfl.fleets")
"""Groups of entry points, in the words of packaging."""


def resolves(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


@cache
def options() -> frozenset[str]:
    """Return the keys of all configuration files, such as ``training.rounds``."""
    sections = (
        (name, field.annotation)
        for config in (Config, FederationConfig, ClientConfig)
        for name, field in config.model_fields.items()
    )
    return frozenset(f"{name}.{key}" for name, section in sections for key in getattr(section, "model_fields", {}))


def is_option(name: str) -> bool:
    """Whether a dotted name is a key, or a key within the table that is the value of one."""
    return ".".join(name.split(".")[:2]) in options()


@cache
def members() -> dict[str, frozenset[str]]:
    """Return what every class of the package defines, by its name, what it inherits included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(_names(node))
                bases.setdefault(node.name, set()).update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))

    def all_of(name: str) -> set[str]:
        return own[name].union(*(all_of(base) for base in bases[name] - {name} if base in own))

    return {name: frozenset(all_of(name)) for name in own}


def _names(cls: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(cls):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def what_is_stale(text: str) -> list[str]:
    """Return the names in a page that lead nowhere: full ones anywhere, the others in code spans."""
    wrong = [name for name in FULL.findall(text) if name not in GROUPS and not resolves(name)]
    for span in re.findall(r"`([^`\n]+)`", text):
        wrong += [
            name
            for name in SHORT.findall(span)
            if name.rsplit(".", 1)[1] not in SUFFIXES and not is_option(name) and not resolves(f"codedfl.{name}")
        ]
        wrong += [
            f"{cls}.{name}" for cls, name in METHOD.findall(span) if cls in members() and name not in members()[cls]
        ]
        wrong += [name for name in FILE.findall(span) if not exists(name)]
    return wrong


def exists(path: str) -> bool:
    """Whether there is such a file or folder in the repository or the package, a module named without a folder anywhere."""
    find = "rglob" if re.fullmatch(r"[\w-]+\.py", path) else "glob"
    return any(next(getattr(folder, find)(path.rstrip("/")), None) for folder in (SOURCE, ROOT))


def current(page: Path) -> str:
    """Return a page; of the changelog only what was added since the last release, as the rest names what is gone."""
    text = page.read_text(encoding="utf-8")
    return text.split("### Added")[1].split("\n### ")[0] if page == CHANGELOG else text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert what_is_stale(current(page)) == []


def test_equations_are_in_the_files_that_the_table_names() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = page.split("## Where the equations are")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!paper|---)(.*) \| (.*) ?\| (.*) \|$", table, flags=re.MULTILINE)
    assert len(rows) > 30
    for paper, names, files in rows:
        text = "".join(path.read_text("utf-8") for file in re.findall(r"`(.+?)`", files) for path in SOURCE.glob(file))
        for name in re.findall(r"`(.+?)`", names):
            if name != "paper.FIGURES":
                assert re.search(rf"^ *(def|class) {name.rsplit('.', 1)[1]}\b", text, re.MULTILINE), f"{paper}: {name}"


def test_the_layout_has_every_package_and_the_layers_are_those_of_the_imports() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^      (\w+)/ ", page.split("## Layout")[1].split("## ")[0], flags=re.MULTILINE)
    assert sorted(listed) == PACKAGES
    assert "".join(f"    {', '.join(layer)}\n" for layer in LAYERS) in page


def test_what_docstrings_name_exists() -> None:
    wrong = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                wrong += [f"{path.relative_to(ROOT)}: {name}" for name in what_is_stale(text.replace("``", "`"))]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "see codedfl.training.no_such_thing",
        "`training.apply_gradients`",
        "`curvature.CurvatureModel`",
        "`Scheme.apply(state, round)`",
        "`training/_aggregation.py`",
        "`tests/no_such_folder/`",
        "`_no_such_module.py`",
    ],
)
def test_what_does_not_exist_is_noticed(text: str) -> None:
    assert len(what_is_stale(text)) == 1


def test_what_exists_passes() -> None:
    text = "codedfl.training.Scheme, `training.deadline_s = 3`, `Upload.draw`, `RunProgress.devices`, `paper/_fig_*.py`"
    assert what_is_stale(f"{text}, `codedfl.schemes`, `theory.png`, `Run.progress`, `tests/golden/`") == []
