"""Details of a run that the summary leaves out: who arrived when, seconds by party, contract items, spectra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.linalg

from codedfl.coding import CurvatureModel, SubspaceSketch, coded_spectrum
from codedfl.experiment._build import Experiment, incentive_outcome
from codedfl.files import plain
from codedfl.fleet import Arrivals
from codedfl.identity import identity
from codedfl.parallel import one_blas_thread
from codedfl.results import Comparison
from codedfl.training import DevicePlan, Evaluator, PreparedScheme, RunResult, Scheme
from codedfl.typing import FloatArray

MOST_ROUNDS = 500
"""Rounds whose attendance is kept; of a longer run, rounds at equal distances."""

MOST_DEVICES = 200
"""Devices whose attendance is kept; of a larger fleet, devices at equal distances."""

MOST_RANKS = 200
"""Eigenvalues of a spectrum that are kept; of more, ranks at equal ratios."""

LARGEST_SPECTRUM = 2048
"""Columns up to which all eigenvalues are computed: a few seconds at most."""


def start_details(
    experiment: Experiment, evaluator: Evaluator, plans: Iterable[tuple[Scheme, DevicePlan, int]]
) -> dict[str, Any]:
    """Return what is known before the first round, for those who follow a run.

    Args:
        experiment: data, fleet and code.
        evaluator: the metric and the centralised reference.
        plans: every scheme with the work of its devices and its number of rounds.
    """
    federation, reference = experiment.setting.federation, evaluator.reference
    planned = list(plans)
    details: dict[str, Any] = plain(
        {
            "task": federation.task,
            "metric": evaluator.metric,
            "samples": federation.total_samples,
            "test_samples": len(federation.test_labels),
            "dimension": federation.dimension,
            "centralised": reference.score if reference else None,
            "devices": list(federation.device_names),
            "schemes": [{"scheme": s.name, "title": s.title, "rounds": rounds} for s, _, rounds in planned],
            "arrivals": _arrivals([(s.name, plan.arrivals, rounds) for s, plan, rounds in planned if plan.broadcasts]),
            "incentive": _incentive(experiment),
        }
    )
    return details


def run_details(comparison: Comparison) -> dict[str, Any]:
    """Return the details of a run that has ended, in the form of `start_details` and with what only its end can tell."""
    results = comparison.results
    planned = [(r.scheme, r.prepared.device, r.progress.ledger.rounds) for r in results]
    ended: dict[str, Any] = plain(
        {
            "seconds": {result.scheme.name: _seconds(result) for result in results},
            "spectrum": _spectrum([result.prepared for result in results]),
        }
    )
    return start_details(comparison.experiment, comparison.evaluator, planned) | ended


def _arrivals(schemes: Sequence[tuple[str, Arrivals, int]]) -> list[dict[str, Any]]:
    """Return who arrived in which round, once for all schemes with the same arrivals.

    A device has one character per round: 1 if its update arrived, 0 if it was asked and none did, - if it was not asked.
    """
    recorded: dict[tuple[str, int], dict[str, Any]] = {}
    groups: list[dict[str, Any]] = []
    for name, arrivals, rounds in schemes:
        key = identity(arrivals), rounds
        if rounds and key not in recorded:
            recorded[key] = _attendance(arrivals, rounds)
        found = recorded.get(key)
        same = [group for group in groups if found and all(group[field] == found[field] for field in found)]
        if same:
            same[0]["schemes"].append(name)
        elif found:
            groups.append({"schemes": [name], **found})
    return groups


def _attendance(arrivals: Arrivals, rounds: int) -> dict[str, Any]:
    every_round = -(-rounds // MOST_ROUNDS)
    devices = len(arrivals.probability)
    every_device = -(-devices // MOST_DEVICES)
    columns = []
    for round in range(0, rounds, every_round):
        attendance = arrivals.attend(round)
        seen = np.full(devices, b"-")
        asked = slice(None) if attendance.devices is None else attendance.devices
        seen[asked] = np.where(attendance.arrived, b"1", b"0")
        columns.append(seen[::every_device])
    table = np.array(columns).T
    return {
        "rounds": rounds,
        "every_round": every_round,
        "every_device": every_device,
        "attendance": [b"".join(row.tolist()).decode() for row in table],
    }


def _seconds(result: RunResult) -> dict[str, Any]:
    """Return where the charged time goes, and how long every device works for it."""
    ledger, upload = result.progress.ledger, result.prepared.upload_cost
    nothing = np.zeros_like(ledger.device_macs)
    payload = result.prepared.setting.workload(result.prepared.device.local_steps).payload_bits
    return {
        "server_between_rounds": ledger.aggregation_s,
        "per_device": {
            "encoding": upload.encoding_s if upload else nothing,
            "coded_upload": upload.upload_s if upload else nothing,
            "computing": result.prepared.setting.timing().computing_s(ledger.device_macs, ledger.updates),
            "updates_arrived": ledger.bits_up / payload,
        },
    }


def _incentive(experiment: Experiment) -> dict[str, Any] | None:
    """Return the item of every device; None without a mechanism."""
    incentive = experiment.config.incentive
    if incentive.mechanism == "none":
        return None
    setting = experiment.setting
    outcome = incentive_outcome(incentive, setting.federation.devices, setting.code.coded_samples)
    return {
        "mechanism": incentive.mechanism,
        "sensitivity": outcome.sensitivity,
        "mi_dp_bits": outcome.mi_dp_bits,
        "noise_variance": outcome.noise_variance,
        "reward": outcome.reward,
        "utility": outcome.utility,
    }


@one_blas_thread()
def _spectrum(prepared: Sequence[PreparedScheme]) -> dict[str, Any] | None:
    """Return the eigenvalues of ``X^T X`` next to what the server sees of them through each upload, in descending order.

    None if no scheme uploads something with a Hessian of its own, or there are too many columns.
    """
    seen: dict[int, dict[str, Any]] = {}
    for each in prepared:
        if id(each.held) in seen:
            seen[id(each.held)]["schemes"].append(each.scheme.name)
        elif each.setting.federation.dimension <= LARGEST_SPECTRUM and (found := _server_view(each)):
            seen[id(each.held)] = {"schemes": [each.scheme.name], **found}
    if not seen:
        return None
    exact = scipy.linalg.eigvalsh(prepared[0].setting.gram.features)[::-1]
    return {"exact": _thinned(exact), "coded": list(seen.values())}


def _server_view(prepared: PreparedScheme) -> dict[str, Any] | None:
    return _seen_in(prepared.held, prepared.setting.federation.samples.astype(np.float64))


@singledispatch
def _seen_in(held: object, samples: FloatArray) -> dict[str, Any] | None:  # noqa: ARG001 (for what has a Hessian)
    """Return what the server sees of the eigenvalues of ``X^T X`` in what it holds; None if that has none of its own."""
    return None


@_seen_in.register
def _(held: tuple, samples: FloatArray) -> dict[str, Any] | None:  # type: ignore[type-arg] # noqa: ARG001
    if len(held) != 1:
        return None
    (coded,) = held
    return {"kind": "coded data", "noise_variance": coded.noise_variance, **_thinned(coded_spectrum(coded)[::-1])}


@_seen_in.register
def _(held: SubspaceSketch, samples: FloatArray) -> dict[str, Any] | None:
    return {"kind": "sketch", "noise_variance": None, **_thinned(CurvatureModel.of(held, samples).curvature.values)}


def _thinned(values: FloatArray) -> dict[str, Any]:
    """Return eigenvalues with their ranks, from 1 on."""
    ranks = np.unique(np.geomspace(1, len(values), min(MOST_RANKS, len(values))).round().astype(int))
    if len(values) <= MOST_RANKS:
        ranks = np.arange(1, len(values) + 1)
    return {"rank": ranks, "value": values[ranks - 1]}
