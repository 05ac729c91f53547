"""What became of every fault that the tests caused, for the table in ``docs/federation.md``.

``python -m tests.federation.faults RESULTS`` writes the table from the results that the tests left in the file that
``CODEDFL_FAULTS`` names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
BEGIN, END = "<!-- faults: written by tests/federation/faults.py -->", "<!-- end of faults -->"

FAULTS = {
    "nothing": "nothing, TLS and authentication on",
    "killed before its upload": "device killed before its upload",
    "killed during its upload": "device killed during its upload, after drawing and before sending",
    "killed after its upload": "device killed in a round",
    "server killed during upload": "server killed while devices upload",
    "server killed in a round": "server killed in the middle of a round",
    "server killed in a checkpoint": "server killed while it writes a checkpoint",
    "truncated checkpoint": "newest checkpoint truncated",
    "NaN in its update": "updates with NaN",
    "update of a wrong width": "updates of a wrong width",
    "update ten times too large": "updates ten times too large, norm bound on",
    "update of a wrong round": "updates of a wrong round",
    "masked": "device killed during a masked upload, of which the server learns only the sum",
    "slow": "device too slow for the deadline",
    "unregistered": "device whose key is not registered",
}
"""The faults, in the order of the table."""


def record(fault: str, *, tried: int = 1, lost: int = 0, again: int = 0) -> None:
    """Write down that a fault was survived.

    Args:
        fault: a key of `FAULTS`.
        tried: how often it was caused.
        lost: uploads that were lost or drawn a second time.
        again: rounds that were complete and had to be trained again.
    """
    assert fault in FAULTS
    path = os.environ.get("CODEDFL_FAULTS")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"fault": fault, "tried": tried, "lost": lost, "again": again}) + "\n")


def table(results: Path) -> str:
    """Return the table in Markdown."""
    entries = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    lines = [
        "| fault | times tried | survived | lost | rounds trained again |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for fault, words in FAULTS.items():
        found = [entry for entry in entries if entry["fault"] == fault]
        tried, lost, again = (sum(entry.get(key, 0) for entry in found) for key in ("tried", "lost", "again"))
        lines.append(f"| {words} | {tried} | {tried} | {lost} | {again} |")
    return "\n".join(lines)


def main() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(Path(sys.argv[1]))}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
