"""Compares what two versions of the package produce on this machine: ``python -m tests.golden --against REF``.

The same scenarios run with the code of a commit and with that of the tree that this file is in, and every file that they
leave is compared byte by byte. Nothing is stored in the repository, since the last digits of results depend on the machine's
BLAS. Outputs of a commit are kept in the user's cache (or in ``--keep``), so that they are made once.
Exit code: 0 if everything is equal, 1 if something differs, 2 if it could not be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from tests.golden.comparing import FAILURES, Difference, compare, files_of
from tests.golden.scenarios import SCENARIOS, SCRIPTED, Same, Scenario, Step

BASELINE = "2a47ae9"
MOST_FILES = 10
"""Files of a scenario of which the difference is shown; the table at the end has all."""
ROOT = Path(__file__).resolve().parents[2]
HELPERS = Path("tests") / "golden"
ENTRY = "import sys; from tests.golden import frozen; frozen.freeze(); from {module} import main; main(sys.argv[1:])"


class CannotCompareError(Exception):
    """Why there is nothing to compare, in a sentence."""


class Tree:
    """A source tree.

    Args:
        root: its folder.
        name: what it is called in messages.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name

    @property
    def helpers(self) -> Path:
        """The tree whose scripts fit its code: itself, unless it is older than the scripts."""
        return self.root if (self.root / HELPERS / "federation.py").is_file() else ROOT

    def prepare(self) -> None:
        """Compile the kernel if that has not been done, and make sure that it is this tree's code that runs."""
        kernel = self.root / "src" / "codedfl" / "native"
        if not _newer(kernel / "_kernel.so", kernel / "kernel.c"):
            _checked([sys.executable, "-m", "codedfl.native.build"], self.environment(), self.root)
        found = _checked([sys.executable, "-P", "-c", "import codedfl; print(codedfl.__file__)"], self.environment())
        if not Path(found.strip()).is_relative_to(self.root):
            raise CannotCompareError(f"python imports {found.strip()}, not the package in {self.root / 'src'}")

    def environment(self, step: Step | None = None) -> dict[str, str]:
        """Return the environment of a process: nothing in it depends on the user's, or on where the tree is."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("CODEDFL_", "PYTEST_", "PYTHON"))
        }
        path = [self.root / "src", *([self.helpers] if step and step.script else [])]
        fixed = {
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        return kept | fixed | ({"CODEDFL_NATIVE": "0"} if step and step.numpy_only else {})

    def run(self, steps: Sequence[Step], folder: Path) -> None:
        """Run processes in a folder, one after the other; each leaves what it prints in a file, and what it says if it fails."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate(steps, 1):
            if step.script:
                start = [sys.executable, "-P", "-c", ENTRY.format(module=SCRIPTED)]
            else:
                start = [sys.executable, "-P", "-m", "codedfl"]
            done = _run([*start, *step.words], self.environment(step), folder)
            name = folder / f"{number:02}-{step.words[0]}"
            name.with_suffix(".out").write_text(done.stdout, encoding="utf-8")
            if done.returncode:
                said = f"{' '.join(step.words)}: exit code {done.returncode}\n{done.stderr}"
                name.with_suffix(".failed").write_text(said, encoding="utf-8")


def _run(
    words: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False
    )


def _checked(words: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """Return what a process prints.

    Raises:
        CannotCompareError: it failed.
    """
    done = _run(words, environment, folder)
    if done.returncode:
        raise CannotCompareError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def _newer(made: Path, source: Path) -> bool:
    return made.is_file() and made.stat().st_mtime >= source.stat().st_mtime


def _git(*words: str) -> str:
    return _checked(["git", "-C", str(ROOT), *words]).strip()


class Reference:
    """What a commit produces, made at most once on this machine.

    Args:
        ref: names the commit.
        cache: where outputs are kept.
    """

    def __init__(self, ref: str, cache: Path) -> None:
        self.commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        self.name, self._cache, self._tree, self._stack = self.commit[:7], cache, None, ExitStack()

    _tree: Tree | None

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def outputs(self, scenario: Scenario) -> tuple[Path, float]:
        """Return the folder with the outputs of a scenario, and the seconds that it took to make them; 0 if they were there."""
        made = self._cache / f"{self.commit[:12]}-{_machine()}" / f"{scenario.name}-{self._digest(scenario)}"
        if made.is_dir():
            return made, 0.0
        tree, began = self.tree(), time.monotonic()
        with _unfinished(made) as folder:
            tree.run(scenario.begun, folder / "begun")
            if scenario.begun:
                shutil.copytree(folder / "begun", folder / "made", symlinks=True)
            tree.run(scenario.steps, folder / "made")
            for failure in sorted(files_of(folder, (FAILURES,))):
                said = (folder / failure).read_text(encoding="utf-8")
                raise CannotCompareError(f"{self.name} fails in {scenario.name}/{failure}: {said[-3000:]}")
        return made, time.monotonic() - began

    def tree(self) -> Tree:
        """Check the commit out, and compile its kernel."""
        if self._tree is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-"))) / self.name
            _git("worktree", "add", "--detach", "--quiet", str(folder), self.commit)
            self._stack.callback(_git, "worktree", "remove", "--force", str(folder))
            self._tree = Tree(folder, self.name)
            self._tree.prepare()
        return self._tree

    def _digest(self, scenario: Scenario) -> str:
        """Return what tells outputs of this scenario from those of an earlier version of it."""
        digest = hashlib.sha256(repr(scenario).encode())
        if any(step.script for step in (*scenario.begun, *scenario.steps)):
            own = _git("ls-tree", self.commit, f"{HELPERS.as_posix()}/federation.py")
            scripts = [] if own else [ROOT / HELPERS / name for name in ("federation.py", "frozen.py")]
            for path in scripts:
                digest.update(path.read_bytes())
        return digest.hexdigest()[:12]


@cache
def _machine() -> str:
    """Return a fingerprint of what results depend on besides the code."""
    installed = sorted(f"{each.name} {each.version}" for each in distributions())
    return hashlib.sha256(repr((platform.platform(), sys.version, os.cpu_count(), installed)).encode()).hexdigest()[:8]


@contextmanager
def _unfinished(made: Path) -> Iterator[Path]:
    """Yield a folder that takes its name when it is complete; another process may have made the same meanwhile."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=made.parent) as folder:
        yield Path(folder) / "outputs"
        if not made.exists():
            (Path(folder) / "outputs").rename(made)


def check(scenario: Scenario, reference: Reference, tree: Tree, folder: Path) -> list[Difference]:
    """Run a scenario, and return what differs from the reference."""
    print(f"{scenario.name:12}", end="", flush=True)
    outputs, seconds = reference.outputs(scenario)
    print(f" {reference.name} {f'{seconds:6.1f} s' if seconds else 'kept':>8}", end="", flush=True)
    began, made = time.monotonic(), folder / scenario.name
    if scenario.begun:
        shutil.copytree(outputs / "begun", made, symlinks=True)
    tree.run(scenario.steps, made)
    different = compare(outputs / "made", made)
    different += [each for same in scenario.same for each in unlike(made, same)]
    took, files = time.monotonic() - began, len(files_of(outputs / "made"))
    print(f"  {tree.name} {took:6.1f} s  {'DIFFERS' if different else 'equal'} ({files} files)", flush=True)
    for each in different[:MOST_FILES]:
        for line in (f"--- {scenario.name}/{each.file}: {each.first}", *each.details):
            print(f"    {line}")
    if len(different) > MOST_FILES:
        print(f"    ... and {len(different) - MOST_FILES} more files, see the table at the end")
    return [Difference(f"{scenario.name}/{each.file}", each.first) for each in different]


def unlike(folder: Path, same: Same) -> list[Difference]:
    """Return what differs between two folders of a scenario that must hold the same."""
    if not files_of(folder / same.one, same.files):
        return [Difference(same.one, "has nothing to compare")]
    return [
        Difference(f"{same.other}/{each.file}", f"not as in {same.one}: {each.first}", each.details)
        for each in compare(folder / same.one, folder / same.other, same.files)
    ]


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return scenarios by name, all of them without names."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in names:
        if name not in known:
            raise CannotCompareError(f"there is no scenario {name!r}, only {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] or list(SCENARIOS)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.golden", description=__doc__.split("\n\n")[0])
    parser.add_argument("--against", default=BASELINE, metavar="REF", help=f"a commit; {BASELINE} by default")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="scenarios; all by default")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all outputs there, those of this tree too")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    given = parser.parse_args(arguments)
    if given.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:12} {scenario.covers}")
        return 0
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codedfl-golden"
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            scenarios, tree = chosen(given.only), Tree(ROOT, "now")
            reference = stack.enter_context(Reference(given.against, (given.keep or cache).resolve()))
            tree.prepare()
            if given.keep:
                folder = given.keep.resolve() / "now"
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-")))
            different = [each for scenario in scenarios for each in check(scenario, reference, tree, folder)]
    except CannotCompareError as problem:
        print(f"\ngolden: {problem}", file=sys.stderr)
        return 2
    print(f"scenarios: {len(scenarios)}, {time.monotonic() - began:.0f} s in all")
    if not different:
        print(f"everything is as at {reference.name}")
        return 0
    width = max(len(each.file) for each in different)
    print(f"differences from {reference.name}: {len(different)}")
    for each in different:
        print(f"{each.file:{width}}  {each.first[:120]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
