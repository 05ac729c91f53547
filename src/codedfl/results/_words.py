"""A verdict in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from codedfl.results._evidence import Difference, Evidence
from codedfl.schemes import YARDSTICK

if TYPE_CHECKING:
    from codedfl.results._verdict import Race, Verdict


def in_words(verdict: Verdict) -> tuple[str, ...]:
    """Return a handful of sentences: quality, speed on both clocks, whether coding pays, and what to beware of."""
    if any(each.interrupted for each in verdict.evidence):
        return ("Training was stopped early, so there is no verdict yet.",)
    return tuple(_Words(verdict).sentences())


class _Words:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.first = verdict, verdict.evidence[0]
        self.accuracy = self.first.task == "classification"
        self.metric = "accuracy" if self.accuracy else "R2"
        self.titles = {scheme.name: scheme.title for scheme in self.first.schemes}

    def sentences(self) -> Iterator[str]:
        useless = bool(self.verdict.candidates) and not self.verdict.useful
        if useless:
            yield self.no_use()
        if self.first.epsilon is not None:
            yield self.privacy(self.first)
        if not self.verdict.candidates:
            if self.first.epsilon is None:
                yield "No scheme can be judged: every one diverged, or there are too few test rows for a score."
            return
        if not useless:
            yield self.quality()
        speed = SpeedWords(self.verdict, self.titles)
        yield from speed.sentences()
        if self.verdict.fedavg_suffices:
            yield "FedAvg suffices here: no other scheme is better or sooner by more than noise."
        elif self.verdict.coding is not None:
            yield speed.coding()
        yield from self.warnings()

    def privacy(self, evidence: Evidence) -> str:
        verdict = self.verdict
        server = "only sums over devices" if evidence.sums_only else "each message"
        promise = (
            f"epsilon = {evidence.epsilon:g}, delta = {evidence.delta:g} per sample for everything that devices send,"
            f" against a server that sees {server}"
        )
        if verdict.best is None:
            return f"No scheme with a usable model keeps {promise}."
        kept = f"{self.titles[verdict.best]} has the highest {self.metric} with {promise}"
        mean, cost = self.centralised(), verdict.cost
        if mean is None or cost is None:
            return f"{kept}."
        price = (
            f"privacy costs {self.by(cost.value)} ({self.interval(cost)} with 95% confidence)"
            if cost.low > 0
            else "privacy costs nothing"
            if cost.high < 0
            else f"what privacy costs, {self.by(cost.value)}, cannot be told from 0 ({self.interval(cost)} with 95% confidence)"
        )
        return f"{kept}: {price}, as the centralised optimum without privacy has {self.score(mean)}."

    def no_use(self) -> str:
        """Say that a constant does as well as every scheme."""
        verdict, best = self.verdict, str(self.verdict.best)
        same = len({each.constant for each in verdict.evidence}) == 1
        constant = self.first.constant if same else "always answering the most frequent class of the training rows"
        score = sum(each.constant_score for each in verdict.evidence) / len(verdict.evidence)
        named = f"{self.titles[best]}, the best scheme," if len(verdict.candidates) > 1 else self.titles[best]
        return (
            f"No scheme is better than a constant answer by more than noise ({self.basis()}): {constant} has {self.metric}"
            f" {self.score(score)}, and {named} {self.score(verdict.scores[best])}."
        )

    def quality(self) -> str:
        verdict, best = self.verdict, str(self.verdict.best)
        score = self.score(verdict.scores[best])
        others = [name for name in verdict.may_be_best if name != best]
        worse = [name for name in verdict.candidates if name not in verdict.may_be_best]
        if verdict.lead is None:
            return (
                f"{self.titles[best]} ends with {self.metric} {score}{self.beside_centralised(verdict.scores[best])}."
            )
        if not worse:
            least = self.score(verdict.scores[verdict.candidates[-1]])
            span = f"{least} to {score}" if least != score else f"{score} for all"
            return f"No scheme is better than another by more than noise ({self.basis()}): {self.metric} is {span}."
        if others:
            return (
                f"{self.titles[best]} has the best {self.metric}, {score}, but {self.listed(others)} cannot be told from it;"
                f" {self.listed(worse)} {is_or_are(worse)} worse by more than noise ({self.basis()})."
            )
        lead = verdict.lead
        if self.plain(lead.value) == self.plain(0.0):
            return (
                f"{self.titles[best]} has the best {self.metric}, {score}, but {self.titles[verdict.candidates[1]]} is less than"
                f" {'0.1 points' if self.accuracy else '0.001'} below: more than noise ({self.basis()}), and of no weight."
            )
        return (
            f"{self.titles[best]} has the best {self.metric}, {score}: {self.by(lead.value)} above"
            f" {self.titles[verdict.candidates[1]]}, which is more than noise ({self.interval(lead)}; {self.basis()})."
        )

    def interval(self, difference: Difference) -> str:
        return f"from {self.plain(difference.low)} to {self.plain(difference.high)}"

    def centralised(self) -> float | None:
        """Return the mean score of the centralised optimum, if it is known under every seed."""
        known = [each.centralised for each in self.verdict.evidence if each.centralised is not None]
        return sum(known) / len(known) if len(known) == len(self.verdict.evidence) else None

    def beside_centralised(self, score: float) -> str:
        mean = self.centralised()
        if mean is None:
            return ""
        place = f"{self.by(mean - score)} below" if mean > score else f"{self.by(score - mean)} above"
        return f", {place} the centralised optimum"

    def basis(self) -> str:
        if self.verdict.noise == "seeds":
            return f"95% confidence over {len(self.verdict.evidence)} seeds"
        return f"95% confidence on {self.first.test_rows} test rows; --seeds 5 would count chance in training too"

    def warnings(self) -> Iterator[str]:
        verdict = self.verdict
        if verdict.heavy:
            most = max(verdict.heavy.values())
            upto = "up to " if len(set(verdict.heavy.values())) > 1 else ""
            yield (
                f"The {'uploads' if len(verdict.heavy) > 1 else 'upload'} of {self.listed(verdict.heavy)} before training"
                f" ({upto}{_bytes(most)}) {'are' if len(verdict.heavy) > 1 else 'is'} larger than the data itself"
                f" ({_bytes(self.first.data_bytes)})."
            )
        if verdict.fell and verdict.useful:
            name, trend = max(verdict.fell.items(), key=lambda item: item[1].peak - item[1].end)
            others = [other for other in verdict.fell if other != name]
            also = f", and so did {self.listed(others)}" if others else ""
            yield (
                f"{self.titles[name]} peaked at {self.score(trend.peak)} after {trend.peak_s:,.0f} s and then fell to"
                f" {self.score(trend.end)}, the mean of its last tenth{also}: more time would not help (peaks are read off the"
                " test rows, so they are no tuned stopping times)."
            )
        if verdict.rising:
            were = "was" if len(verdict.rising) == 1 else "were"
            yield (
                f"{self.listed(verdict.rising)} {were} still improving when training ended: more time or rounds may change this"
                " verdict."
            )

    def score(self, value: float) -> str:
        return f"{value:.1%}" if self.accuracy else f"{value:.3f}"

    def by(self, difference: float) -> str:
        return f"{self.plain(difference)} points" if self.accuracy else self.plain(difference)

    def plain(self, difference: float) -> str:
        return f"{100 * difference:.1f}" if self.accuracy else f"{difference:.3f}"

    def listed(self, names: Iterable[str]) -> str:
        return listed([self.titles[name] for name in names])


def _bytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


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
