"""One virtual environment per peer, made by ``python -m venv`` and pip alone and kept in a cache folder.

The requirements are pinned in ``requirements-<peer>.txt`` beside this file. A stamp, written last, holds a digest of them and
of the Python version: an environment whose stamp agrees is used again, any other one is made anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PEERS = ("pfl", "fedjax", "flower")
STAMP = "requirements.sha256"


def make_environment(peer: str, cache: Path) -> Path:
    """Make or reuse the environment of a peer, and return its interpreter."""
    requirements = Path(__file__).parent / f"requirements-{peer}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = cache.resolve() / peer
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == digest and python.exists():
        return python
    print(f"making an environment for {peer} in {folder} (takes a minute or two)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        subprocess.run(command, check=True, stdout=sys.stderr)
    stamp.write_text(digest)
    return python
