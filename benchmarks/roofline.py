"""Draw the roofline: what ``rounds.py --out`` measured, beside what the machine can do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from codedfl.plotting import new_figure, to_png

FLOPS = 4 * 5 * 20 * 64 * 2000 * 10
"""Operations of a round of W1: two products, five steps, 20 devices, batches of 64, d = 2,000, o = 10."""

INTENSITY = FLOPS / (4 * 5 * 20 * 64 * 2000)
"""Operations for each byte of sampled rows, if a row is read from memory once in a step."""


def draw(measured: dict[str, object]) -> bytes:
    """Return the picture as a PNG file."""
    figure = new_figure(8, 4.8)
    axes = figure.add_subplot()
    peak, bandwidth = float(str(measured["sgemm_gflops"])), float(str(measured["copy_gbytes"]))
    intensity = np.geomspace(0.5, 200, 200)
    axes.plot(intensity, np.minimum(peak, bandwidth * intensity), color="#333333", linewidth=2)
    axes.annotate(f"sgemm, all cores: {peak:.0f} GFLOP/s", (40, peak), (40, peak * 1.15), fontsize=9)
    axes.annotate(
        f"copy, all cores: {bandwidth:.0f} GB/s", (0.6, bandwidth * 0.6), (0.62, bandwidth), fontsize=9, rotation=30
    )
    rows = [row for row in measured["rows"] if row["workload"] == "W1"]  # type: ignore[attr-defined]
    heights: list[float] = []
    for row in sorted(rows, key=lambda row: -row["rounds_per_second"]):
        achieved = row["rounds_per_second"] * FLOPS / 1e9
        ours = row["engine"].startswith("codedfl")
        axes.plot(INTENSITY, achieved, "o", color="#0072B2" if ours else "#999999", markersize=7)
        height = achieved if not heights else min(achieved, heights[-1] / 1.22)
        heights.append(height)
        text = f"{row['engine']}: {row['rounds_per_second']:.0f} rounds/s"
        axes.annotate(
            text,
            (INTENSITY, achieved),
            (INTENSITY * 1.4, height),
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.7},
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations for each byte of sampled rows")
    axes.set_ylabel("GFLOP/s")
    axes.set_ylim(1, 2 * peak)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#EEEEEE", linewidth=0.6)
    axes.set_title("a round of W1 against the limits of the machine", loc="left", fontsize=11)
    return to_png(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path, help="what rounds.py wrote with --out")
    parser.add_argument("picture", type=Path, help="the PNG file to write")
    options = parser.parse_args()
    options.picture.write_bytes(draw(json.loads(options.measured.read_text())))


if __name__ == "__main__":
    main()
