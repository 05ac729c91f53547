"""Time to design a contract, per device, from a thousand devices to a million."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from codedfl.incentive import DeviceTraits, design_contract
from codedfl.parallel import one_blas_thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to ten thousand devices")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    rows = []
    with one_blas_thread():
        for devices in (1000, 10_000) if arguments.quick else (1000, 10_000, 100_000, 1_000_000):
            rng = np.random.default_rng(devices)
            traits = DeviceTraits(
                rng.uniform(1.0, 2.0, devices), rng.uniform(0.0, 5.0, devices), rng.uniform(0.0, 1.0, devices)
            )
            began = time.perf_counter()
            contract = design_contract(traits, reward_weight=9000.0)
            seconds = time.perf_counter() - began
            rows.append(
                {
                    "devices": devices,
                    "seconds": seconds,
                    "us_per_device": 1e6 * seconds / devices,
                    "items": contract.menu.items,
                }
            )
    if arguments.json:
        print(json.dumps({"contract": rows}))
        return
    print("unequal interference and least noise, so that ironing happens; one core")
    for row in rows:
        print(
            f"{row['devices']:>9} devices  {row['seconds']:8.3f} s  {row['us_per_device']:7.2f} us/device  {row['items']} items"
        )


if __name__ == "__main__":
    main()
