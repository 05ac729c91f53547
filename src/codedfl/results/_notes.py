"""Notes for the reader of a comparison's results, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codedfl._messages import number
from codedfl.config import Config
from codedfl.data import Federation, is_federation_folder, is_file_name
from codedfl.privacy import keeps
from codedfl.results._comparison import Comparison
from codedfl.results._privacy import clipped_share, privacy_of
from codedfl.schemes import FULLY_PRIVATE
from codedfl.training import RunResult, rounds_within

HARDLY_EVER = 1e-3
"""An arrival probability below which a device deserves a note."""

FAR = 1.0
"""Standard deviations of the targets beyond which a mean that is not subtracted costs much accuracy."""

MOST_NAMES = 5
"""Largest number of devices that a note names."""


def notes_on(comparison: Comparison) -> list[str]:
    """Return notes for the reader of the results, one sentence each.

    Example:
        >>> from codedfl.experiment import load_config, run
        >>> given = [("schemes", ["scfl"]), ("training.rounds", 5), ("learning_rate.scale", 0.5)]
        >>> comparison = run(load_config(overrides=[*given, ("incentive.mechanism", "contract")]))
        >>> notes_on(comparison)[0].split(",")[0]
        'contract with a total reward of 100: 20 of 20 devices upload'
    """
    notes = list(comparison.remarks)
    for rare, titles in _rare_devices(comparison).items():
        notes.append(
            f"in {', '.join(titles)}, {_listed(rare)} hardly ever make the deadline: only coded data, if any, stands in for them."
        )
    notes += [*round_notes(comparison), *_fleet_notes(comparison), *_recording_notes(comparison)]
    notes += _incentive_notes(comparison) + _privacy_notes(comparison)
    if any(result.choice for result in comparison.results):
        chosen = ", ".join(f"{result.scheme.title} {result.scale:g}" for result in comparison.results if result.choice)
        notes.append(f"step sizes, in units of 1 / L, chosen on held-out training data: {chosen}.")
    for result in comparison.results:
        if result.message:
            notes.append(f"{result.scheme.title} {result.message}.")
        notes += [f"{result.scheme.title} {each}." for each in result.scheme.remarks(result.progress.state)]
        if result.choice and result.choice.at_edge and len(result.choice.trials) > 1:
            notes.append(
                f"{result.scheme.title} did best with the step size {result.scale:g} / L at the edge of learning_rate.grid:"
                " a wider grid might do better."
            )
    return notes


def _fleet_notes(comparison: Comparison) -> list[str]:
    """Return a note if the devices of a user's own data were made up."""
    config = comparison.config
    own_data = is_file_name(config.data.dataset) or is_federation_folder(config.data.dataset)
    if not own_data or config.fleet.file or config.fleet.trace:
        return []
    return ["the fleet was drawn at random from the paper's model; fleet.file describes yours."]


def _recording_notes(comparison: Comparison) -> list[str]:
    """Return a note if a recording of answers is shorter than the run."""
    recorded = comparison.setting.fleet.recorded_rounds
    longest = max((r.final.round for r in comparison.results if r.prepared.device.broadcasts), default=0)
    if recorded is None or longest <= recorded:
        return []
    return [
        f"the recording of answers has {recorded} round(s) and the run {longest}: it was replayed from its start again."
    ]


def _incentive_notes(comparison: Comparison) -> list[str]:
    """Return notes on the incentive mechanism and the noise it led to."""
    incentive, code = comparison.config.incentive, comparison.setting.code
    if incentive.mechanism == "none":
        return []
    noise = code.noise_variance[code.uploading]
    return [
        f"{incentive.mechanism} with a total reward of {incentive.total_reward:g}: {noise.size} of {code.uploading.size} devices"
        f" upload, with noise variances from {noise.min():.4g} to {noise.max():.4g}, {noise.sum():.4g} in total."
    ]


def _privacy_notes(comparison: Comparison) -> list[str]:
    """Return notes on clipping and its worst-case guarantee; none without clipping."""
    code, delta = comparison.setting.code, comparison.config.privacy.delta
    if comparison.setting.privacy is not None:
        return list(_limits_of_privacy(comparison))
    if code.clip_norm is None:
        return []
    notes = [
        f"clipping to norm {code.clip_norm:g} weighted {clipped_share(comparison.setting):.0%} of the samples down."
    ]
    budgets = {result.scheme.title: privacy_of(result, delta) for result in comparison.results}
    epsilons = [
        f"{title} {', '.join(number(budget[name]) for name in ('epsilon_features', 'epsilon', 'epsilon_in_sum'))}"
        for title, budget in budgets.items()
        if budget["epsilon"] is not None
    ]
    if epsilons:
        notes.append(
            f"worst-case epsilon at delta = {delta:g} of the coded features, of features and labels, and of both if the server"
            f" sees only the sum (training not covered): {'; '.join(epsilons)}."
        )
    return notes


def _limits_of_privacy(comparison: Comparison) -> Iterator[str]:
    """Yield what the epsilon of a run does not cover."""
    guarantees = {result.scheme.name: comparison.guarantee(result.scheme.name) for result in comparison.results}
    uncovered = {
        what: [r.scheme.title for r in comparison.results if guarantees[r.scheme.name].covers == what]
        for what in ("upload", "nothing")
    }
    if titles := uncovered["upload"]:
        its, upload = ("its", "upload") if len(titles) == 1 else ("their", "uploads")
        yield f"epsilon of {', '.join(titles)} covers {its} {upload} alone; {its} updates travel in the clear."
    if titles := uncovered["nothing"]:
        yield f"epsilon of {', '.join(titles)} covers nothing."
    target = comparison.config.privacy.epsilon
    for result in comparison.results:
        guarantee, title = guarantees[result.scheme.name], result.scheme.title
        if guarantee.covers == "everything" and not keeps(guarantee.as_dict(), target):
            yield f"{title} has epsilon = {guarantee.epsilon:.4g} and does not keep the {target:g} that was asked for."
    covered = [name for name, guarantee in guarantees.items() if guarantee.covers == "everything"]
    others = [name for name in FULLY_PRIVATE if name not in comparison.config.schemes]
    if others and (not covered or FULLY_PRIVATE[0] in others):
        yield f"epsilon covers all that devices send with {', '.join(others)}, not compared here: add to schemes what suits you."
    if far := _far_from_zero(comparison.setting.federation):
        yield (
            f"the targets lie far from 0 (their mean is {far:.1f} times their standard deviation), and noise is for their whole"
            " size: subtract a typical value that is known without the data (--label-center) and lower --label-bound to match."
        )
    clip_norm = comparison.setting.code.clip_norm
    if clip_norm is not None:
        yield f"samples are clipped to norm {clip_norm:g}, which weights {clipped_share(comparison.setting):.0%} of them down."
    outside = {clause for guarantee in guarantees.values() for clause in guarantee.outside}
    yield f"outside of any epsilon: {'; '.join(sorted(outside))}."


def _far_from_zero(federation: Federation) -> float | None:
    """Return how many standard deviations the mean of a regression's test targets is from 0; None if that is few."""
    if federation.task == "classification" or len(federation.test_labels) < 2:
        return None
    targets = federation.test_labels.astype(np.float64)
    spread = float(np.sqrt(np.mean((targets - targets.mean(axis=0)) ** 2)))
    offset = float(np.sqrt(np.mean(targets.mean(axis=0) ** 2)))
    return offset / spread if spread > 0 and offset > FAR * spread else None


def _rare_devices(comparison: Comparison) -> dict[tuple[str, ...], list[str]]:
    """Return the devices that rarely arrive, with the schemes concerned."""
    names = comparison.setting.federation.device_names
    found: dict[tuple[str, ...], list[str]] = {}
    for result in comparison.results:
        plan = result.prepared.device
        rare = tuple(names[i] for i in np.flatnonzero(plan.arrivals.probability < HARDLY_EVER))
        if rare and plan.broadcasts:
            found.setdefault(rare, []).append(result.scheme.title)
    return found


def _listed(names: tuple[str, ...]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


FEW_ROUNDS = 10
"""A run with fewer rounds than this has hardly begun."""


def round_notes(comparison: Comparison) -> Iterator[str]:
    """Yield notes on the rounds that schemes trained for, if they differ from what was asked for or are very few."""
    results = [result for result in comparison.results if not result.scheme.one_shot]
    own = {result.scheme.name: result.scheme.rounds(comparison.setting) for result in results}
    yield from _own_rounds(comparison, [(result, rounds) for result in results if (rounds := own[result.scheme.name])])
    if not comparison.config.training.rounds:
        yield from _few_rounds(comparison, [result for result in results if own[result.scheme.name] is None])


def _own_rounds(comparison: Comparison, results: list[tuple[RunResult, int]]) -> Iterator[str]:
    """Yield a note if schemes do not follow the rounds or the time that the user set."""
    training, options, default = comparison.config.training, comparison.config.options, Config()
    if training.rounds:
        asked = f"training.rounds = {training.rounds}"
    elif training.total_time_s != default.training.total_time_s:
        asked = f"training.total_time_s = {training.total_time_s:g}"
    else:
        return
    others = []
    for result, rounds in results:
        plan, name = result.prepared.device, result.scheme.name
        wanted = training.rounds or training.total_time_s / plan.arrivals.duration_s
        chosen = options.get(name, {}).get("rounds") != default.options.get(name, {}).get("rounds")
        if rounds != int(wanted + 1e-9) and not chosen:
            others.append((name, f"{result.scheme.title} ({rounds} rounds, {rounds * plan.arrivals.duration_s:.4g} s)"))
    if others:
        names, titles = zip(*others, strict=True)
        which = " and ".join(f"options.{name}.rounds" for name in names)
        one = len(names) == 1
        yield (
            f"{asked} does not apply to {', '.join(titles)}, which {'sets its' if one else 'set their'} own rounds and the noise"
            f" for them: {which} {'changes' if one else 'change'} that."
        )


def _few_rounds(comparison: Comparison, results: list[RunResult]) -> Iterator[str]:
    """Yield a note for each duration of a round that only few fit in."""
    total_time_s = comparison.config.training.total_time_s
    titles: dict[tuple[int, float], list[str]] = {}
    for result in results:
        plan = result.prepared.device
        fitting = rounds_within(result.scheme.name, plan, total_time_s)
        if fitting < FEW_ROUNDS:
            titles.setdefault((fitting, plan.arrivals.duration_s), []).append(result.scheme.title)
    for (fitting, duration_s), names in titles.items():
        rounds = "1 round fits" if fitting == 1 else f"{fitting} rounds fit"
        yield (
            f"only {rounds} in training.total_time_s = {total_time_s:g} with rounds of {duration_s:g} s ({', '.join(names)}):"
            " raise it, or lower training.deadline_s."
        )
