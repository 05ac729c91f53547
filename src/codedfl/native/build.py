"""Compiles the kernel, if there is a C compiler: ``python -m codedfl.native.build``.

Installing the package does the same; without a compiler, everything runs on numpy. With ``--sanitize FILE`` the kernel is built
with the address and undefined-behaviour sanitizers, for tests (set CODEDFL_KERNEL to the file). This file also runs on its own,
before the package and its dependencies are installed, so it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER / "_kernel.so"
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-psabi")


def compile_kernel(library: Path = LIBRARY, more_flags: tuple[str, ...] = ()) -> str | None:
    """Compile ``kernel.c`` into a shared library, replacing an earlier one; return what went wrong, or None."""
    library.unlink(missing_ok=True)
    compiler = find_compiler()
    if compiler is None:
        return "no C compiler found"
    unfinished = library.with_suffix(".tmp")
    try:
        subprocess.run(
            [*compiler, *FLAGS, *more_flags, str(FOLDER / "kernel.c"), "-o", str(unfinished)],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        unfinished.replace(library)
    except (OSError, subprocess.SubprocessError) as error:
        unfinished.unlink(missing_ok=True)
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return f"{compiler[0]} failed: {said[0] if said else 'without a word'}"
    return None


def find_compiler() -> list[str] | None:
    """Return the command of the C compiler: that of the environment variable CC if set, else Python's own, else a usual one."""
    if os.name != "posix":
        return None
    wanted = os.environ.get("CC")
    for command in [wanted] if wanted else [sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]:
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


if __name__ == "__main__":
    sanitized = Path(sys.argv[2]) if sys.argv[1:2] == ["--sanitize"] else None
    problem = compile_kernel(sanitized, SANITIZERS) if sanitized else compile_kernel()
    print(f"codedfl runs on numpy alone: {problem}." if problem else f"Compiled {sanitized or LIBRARY}.")
    sys.exit(1 if problem and sanitized else 0)
