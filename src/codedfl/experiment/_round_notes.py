"""Notes on the rounds of a comparison: schemes that set their own, and times that only few fit into."""

from __future__ import annotations

from collections.abc import Iterator

from codedfl.config import Config
from codedfl.experiment._comparison import Comparison
from codedfl.training import RunResult, rounds_within

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
