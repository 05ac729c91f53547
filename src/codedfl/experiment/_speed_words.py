"""Who arrives first, and whether coding pays, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from codedfl.experiment._race import Race
from codedfl.schemes import YARDSTICK

if TYPE_CHECKING:
    from codedfl.experiment._verdict import Verdict


class SpeedWords:
    """Sentences about the race of a verdict.

    Args:
        verdict: the verdict.
        titles: titles of the schemes by name.
    """

    def __init__(self, verdict: Verdict, titles: Mapping[str, str]) -> None:
        self.verdict, self.titles = verdict, titles

    def sentences(self) -> Iterator[str]:
        """Say who is first on either clock, and when."""
        verdict = self.verdict
        if verdict.goal is None or verdict.training is None or verdict.everything is None:
            return
        training, everything, goal = verdict.training, verdict.everything, verdict.goal.words
        if training.first[0] == everything.first[0] and set(training.first) == set(everything.first):
            leaders = self.leaders(training, everything)
            yield (
                f"{self.named(leaders)} {is_or_are(leaders)} first {goal}: {_after(training)} on the training clock,"
                f" {_after(everything)} with everything charged{self.as_early(everything, leaders)}"
                f"{self.fedavg(everything)}."
            )
            return
        leaders = self.leaders(training)
        yield (
            f"On the training clock, {self.named(leaders)} {is_or_are(leaders)} first {goal}, {_after(training)}"
            f"{self.as_early(training, leaders)}{self.fedavg(training)}."
        )
        leaders = self.leaders(everything)
        yield (
            f"With encoding and uploads charged as well, {self.named(leaders)} {is_or_are(leaders)} first there,"
            f" {_after(everything)}{self.as_early(everything, leaders)}{self.fedavg(everything)}."
        )

    def leaders(self, *races: Race) -> list[str]:
        """Name the earliest, together with those for which a single run shows the very same times."""
        first = races[0].first
        if len(self.verdict.evidence) > 1:
            return list(first[:1])
        return [name for name in first if all(_after(race, name) == _after(race) for race in races)]

    def as_early(self, race: Race, leaders: Sequence[str]) -> str:
        """Say that times are means over seeds, and who cannot be told from the first."""
        others = [name for name in race.first if name not in leaders]
        if len(self.verdict.evidence) > 1:
            return " on average" + (f" ({self.named(others)} may be as early under other seeds)" if others else "")
        if not others:
            return ""
        times = listed([f"{self.titles[name]}, {_after(race, name)}," for name in others])
        return f" ({times} {is_or_are(others)} as early as far as the evaluations tell)"

    def fedavg(self, race: Race) -> str:
        """Say how long the usual scheme takes."""
        if YARDSTICK not in self.verdict.candidates or YARDSTICK in race.first:
            return ""
        took = race.seconds.get(YARDSTICK)
        never = (
            "; FedAvg never gets there to stay"
            if len(self.verdict.evidence) == 1
            else "; FedAvg does not always get there to stay"
        )
        return never if took is None else f"; FedAvg needs {took:,.0f} s"

    def coding(self) -> str:
        """Say whether coding pays, with the times of the quickest scheme of either kind."""
        race, coded = self.verdict.everything, {s.name for s in self.verdict.evidence[0].schemes if s.coded}
        assert race is not None
        with_code, without = (next((n for n in race.times if (n in coded) is kind), None) for kind in (True, False))
        judgement = f"Coding {self.verdict.coding} here"
        if with_code is None:
            return f"{judgement}: with everything charged, no coded scheme gets there in time."
        if without is None:
            return f"{judgement}: with everything charged, no scheme without coding gets there in time."
        seconds = race.seconds
        return (
            f"{judgement}: with everything charged, {self.titles[with_code]} needs {seconds[with_code]:,.0f} s, and"
            f" {self.titles[without]}, the quickest scheme without coding, {seconds[without]:,.0f} s."
        )

    def named(self, names: Iterable[str]) -> str:
        """List the titles of schemes."""
        return listed([self.titles[name] for name in names])


def listed(words: Sequence[str]) -> str:
    """Join words with commas, and the last with a conjunction."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def is_or_are(names: Sequence[str]) -> str:
    """Return the verb that goes with some names."""
    return "is" if len(names) == 1 else "are"


def _after(race: Race, name: str | None = None) -> str:
    """Return the time of a scheme, or of the first."""
    seconds = race.seconds[name or race.first[0]]
    return f"after {seconds:,.0f} s" if seconds > 0 else "at once"
