"""Write a made-up table of twelve hospitals (hospitals.csv), how often each answers in time (fleet.csv), and later.csv."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

HOSPITALS = {
    # name: admissions, mean age, share of emergency admissions, how often its computer answers within a round
    "Alder": (900, 62, 0.45, 0.98),
    "Birch": (820, 58, 0.35, 0.97),
    "Cedar": (640, 66, 0.50, 0.95),
    "Dogwood": (510, 71, 0.55, 0.90),
    "Elm": (450, 49, 0.30, 0.90),
    "Fir": (400, 54, 0.60, 0.85),
    "Ginkgo": (330, 74, 0.40, 0.70),
    "Hazel": (260, 68, 0.65, 0.60),
    "Juniper": (210, 77, 0.70, 0.45),
    "Larch": (150, 79, 0.75, 0.30),
    "Maple": (90, 81, 0.80, 0.25),
    "Oak": (40, 83, 0.85, 0.20),
}
LATER = 400
"""Admissions that are kept for later, to try the model on."""

WARDS = ("cardiology", "geriatrics", "internal", "oncology", "surgery")
COLUMNS = (
    *("patient_id", "hospital", "admitted", "age", "sex", "ward", "emergency"),
    *("days_in_hospital", "earlier_admissions", "creatinine", "haemoglobin", "readmitted"),
)


def admissions(name: str, rng: np.random.Generator) -> list[list[object]]:
    """Return the rows of one hospital. The small hospitals are late most often, and treat the oldest patients."""
    count, mean_age, emergencies, _ = HOSPITALS[name]
    rows: list[list[object]] = []
    for _ in range(count):
        age = int(np.clip(rng.normal(mean_age, 13), 18, 101))
        emergency = rng.random() < emergencies
        ward = WARDS[rng.choice(5, p=(0.2, 0.25, 0.25, 0.1, 0.2) if age > 65 else (0.15, 0.02, 0.33, 0.15, 0.35))]
        days = 1 + rng.poisson(3 + 0.05 * age + 3 * emergency)
        earlier = rng.poisson(0.3 + 0.012 * age)
        creatinine = rng.lognormal(-0.1 + 0.004 * (age - 50), 0.3)
        haemoglobin = rng.normal(14 - 0.03 * (age - 50) - 0.8 * (ward == "oncology"), 1.4)
        risk = -5.4 + 0.05 * age + 1.6 * emergency + 0.9 * earlier + 2.5 * (creatinine - 1) - 0.35 * (haemoglobin - 13)
        risk += {"cardiology": 1.2, "geriatrics": 0.9, "internal": 0.3, "oncology": 2.2, "surgery": -1.0}[ward]
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=int(rng.integers(366)))
        rows.append(
            [
                *(
                    name,
                    day.isoformat(),
                    age,
                    rng.choice(["female", "male"]),
                    ward,
                    "yes" if emergency else "no",
                    days,
                    earlier,
                ),
                "" if rng.random() < 0.12 else f"{creatinine:.2f}",
                "" if rng.random() < 0.05 else f"{haemoglobin:.1f}",
                "yes" if rng.random() < 1 / (1 + np.exp(-risk)) else "no",
            ]
        )
    return rows


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[object]], separator: str) -> None:
    """Write a table into the current folder."""
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=separator, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def main() -> None:
    """Write all files into the current folder."""
    rng = np.random.default_rng(2024)
    rows = [row for name in HOSPITALS for row in admissions(name, rng)]
    rng.shuffle(rows)
    numbered = [[100_000 + place, *row] for place, row in enumerate(rows)]
    write("hospitals.csv", COLUMNS, numbered[LATER:], ";")
    write("later.csv", COLUMNS, numbered[:LATER], ";")
    write("fleet.csv", ["name", "arrival_probability"], [[name, own[-1]] for name, own in HOSPITALS.items()], ",")
    print(f"hospitals.csv has {len(rows) - LATER:,} admissions to {len(HOSPITALS)} hospitals, later.csv {LATER:,} more")


if __name__ == "__main__":
    main()
