"""Identity follows content: whatever field of whatever class changes, the identity changes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel

from codedfl.coding import CodedData
from codedfl.config import Config
from codedfl.data import Federation
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    Answers,
    ArrivalChances,
    Arrivals,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    MeasuredFleet,
    MeasuredTiming,
    RecordedAnswers,
    ResponseTimes,
    RoundTiming,
    TraceArrivals,
)
from codedfl.identity import NOT_IDENTITY, ByObject, identity
from codedfl.parallel import Workers
from codedfl.schemes import SCHEMES, cfl_fb, codedfedl, dp_cfl, fedavg, make_scheme, scfl, scfl_fixed
from codedfl.setting import Code, Setting
from codedfl.streams import Streams
from codedfl.training import LearningRate, PreparedScheme, Scheme
from codedfl.training.protocol._devices import LocalSGDPlan
from tests.problems import make_federation, make_setting

FEDERATION = make_federation()
"""Compared by object, so both of two things that should be equal hold the same."""


def setting() -> Setting:
    made = make_setting(FEDERATION, noise_variance=(0.1, 0.2, 0.3, 0.4), cohort=3)
    return replace(made, code=code())


def code() -> Code:
    participants = np.array([True, True, False, True])
    return Code(20, np.full(4, 0.1), np.full(4, 0.2), "gram", 0.9, participants, 2)


def adaptive() -> AdaptiveBatchArrivals:
    timing = setting().timing()
    assert isinstance(timing, RoundTiming)
    return AdaptiveBatchArrivals(timing, FEDERATION.samples, Streams(3))


def measured(answers: Answers) -> MeasuredTiming:
    rates = np.array([1e6, 2e6, 3e6, 4e6])
    fleet = MeasuredFleet(FEDERATION.device_names, answers, np.array([1, 2, 3, 4]), rates, rates)
    return MeasuredTiming(fleet, setting().workload(), 2.0)


def fixed() -> FixedBatchArrivals:
    return FixedBatchArrivals(setting().timing(), np.array([1, 2, 3, 1]), Streams(3))


def trace() -> TraceArrivals:
    return TraceArrivals(np.ones((2, 4), np.int64), np.ones((2, 4), np.bool_), np.full(4, 0.5), 1.0)


def prepared(scheme: Scheme) -> PreparedScheme:
    everyone = replace(code(), participants=None)
    return scheme.prepare(replace(setting(), code=everyone))


RECORDS: dict[str, Callable[[], Any]] = {
    "Streams": lambda: Streams(3),
    "Channel": Channel,
    "Fleet": lambda: setting().fleet,
    "Workload": lambda: setting().workload(),
    "RoundTiming": lambda: setting().timing(),
    "chances": lambda: measured(ArrivalChances(np.array([0.1, 0.2, 0.3, 0.4]))),
    "response times": lambda: measured(ResponseTimes(np.full(4, 2.0), np.full(4, 4.0))),
    "recorded answers": lambda: measured(RecordedAnswers(np.ones((2, 4)))),
    "Code": code,
    "Setting": setting,
    "LocalSGDPlan": lambda: LocalSGDPlan(FEDERATION, Streams(3), 2, adaptive()),
    "AdaptiveBatchArrivals": adaptive,
    "FixedBatchArrivals": fixed,
    "CohortArrivals": lambda: CohortArrivals(adaptive(), 2),
    "TraceArrivals": trace,
    "LearningRate": lambda: LearningRate(0.1, 20.0),
    "Config": Config,
    **{f"section {name}": partial(getattr, Config(), name) for name in Config.model_fields if name != "seed"},
    **{f"scheme {name}": partial(make_scheme, name) for name in SCHEMES},
    "device plan of FedAvg": lambda: prepared(fedavg()).device,
    "device plan of CodedFedL": lambda: prepared(codedfedl(2)).device,
    "arrivals of CodedFedL": lambda: prepared(codedfedl(2)).device.arrivals,
    "device plan of DP-CFL": lambda: prepared(dp_cfl()).device,
    "arrivals of DP-CFL": lambda: prepared(dp_cfl()).device.arrivals,
}
"""Everything that takes part in deciding what is shared, cached or resumed."""

SERVERS: dict[str, Callable[[], Any]] = {
    "server plan of SCFL": lambda: prepared(scfl()).server,
    "server plan of CFL-FB": lambda: prepared(cfl_fb()).server,
}


def others(value: Any) -> Iterator[tuple[Any, bool]]:
    """Yield values that differ from one, a little or in their type, each with whether the identity should notice."""
    match value:
        case bool():
            yield not value, True
        case int():
            yield value + 1, True
        case float():
            yield float(np.nextafter(value, np.inf)), True
            yield value + 1.0, True
        case str():
            yield value + "x", True
        case None:
            yield 0, True
        case np.ndarray():
            for place in (0, -1) if value.size else ():
                changed = value.copy()
                changed.flat[place], _ = next(others(changed.flat[place].item()))
                yield changed, True
            yield value.astype(np.float32), True
            yield np.append(value, value[:1], axis=0) if value.size else np.zeros(1, value.dtype), True
        case tuple():
            yield (*value, "more"), True
            for place, item in enumerate(value):
                yield from (((*value[:place], other, *value[place + 1 :]), seen) for other, seen in others(item))
        case dict():
            yield {**value, "more": 1}, True
            for key, item in value.items():
                yield from (({**value, key: other}, seen) for other, seen in others(item))
        case Federation() | CodedData():
            yield replace(value), True
        case Workers():
            yield Workers(1), False
        case _:
            assert is_dataclass(value) or isinstance(value, BaseModel), f"what is another {type(value).__name__} like?"
            yield None, True
            for name, takes_part in own_fields(value):
                part = getattr(value, name)
                yield from ((altered(value, name, other), takes_part and seen) for other, seen in others(part))


def own_fields(value: Any) -> list[tuple[str, bool]]:
    """Return the fields of a record, and whether each takes part in its identity."""
    if isinstance(value, BaseModel):
        return [(name, info.json_schema_extra != NOT_IDENTITY) for name, info in type(value).model_fields.items()]
    return [(item.name, item.metadata.get("identity", True)) for item in fields(value)]


def altered(value: Any, name: str, other: Any) -> Any:
    """Return a record with another value in one field, whether or not the class would accept it."""
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: other})
    copy = object.__new__(type(value))
    for item in fields(value):
        object.__setattr__(copy, item.name, other if item.name == name else getattr(value, item.name))
    return copy


@pytest.mark.parametrize("kind", [*RECORDS, *SERVERS])
def test_every_field_changes_the_identity_unless_it_is_declared_not_to(kind: str) -> None:
    value = {**RECORDS, **SERVERS}[kind]()
    base = identity(value)
    for other, noticed in others(value):
        if noticed:
            assert identity(other) != base, f"{other!r} goes unnoticed"
        else:
            assert identity(other) == base, f"{other!r} should not matter"


def test_only_what_is_known_not_to_change_results_is_excluded() -> None:
    values = [make() for make in (*RECORDS.values(), *SERVERS.values())]
    found = {
        (type(value).__name__, name)
        for value in values
        if is_dataclass(value) or isinstance(value, BaseModel)
        for name, takes_part in own_fields(value)
        if not takes_part
    }
    schemes = {type(value).__name__ for value in values if isinstance(value, Scheme)}
    assert found == {
        *((scheme, look) for scheme in schemes for look in ("colour", "prominent")),
        ("Setting", "workers"),
        ("_CodedSGDPlan", "make_up"),
        ("_ParityPlan", "make_up"),
        ("DataConfig", "data_dir"),
        ("TrainingConfig", "workers"),
    }


@pytest.mark.parametrize("kind", RECORDS)
def test_equal_content_built_twice_has_equal_identity(kind: str) -> None:
    first, second = RECORDS[kind](), RECORDS[kind]()
    assert identity(first) == identity(second)
    assert identity([first, {"a": first}]) == identity([second, {"a": second}])


def test_no_two_records_share_an_identity() -> None:
    made = {kind: make() for kind, make in RECORDS.items()}
    different = {kind: value for kind, value in made.items() if not kind.startswith("device plan of FedAvg")}
    assert len({identity(value) for value in different.values()}) == len(different)


def test_schemes_with_other_options_differ() -> None:
    schemes = [
        *(fedavg(), fedavg(4), fedavg(5), dp_cfl(), scfl(), scfl(4), scfl(device_weight=0.4), scfl_fixed(4)),
        *(cfl_fb(), cfl_fb("free"), cfl_fb(noise=True), codedfedl(), codedfedl(3), codedfedl(3, "free")),
    ]
    assert len({identity(scheme) for scheme in schemes}) == len(schemes)


def test_a_subclass_of_a_scheme_is_another_scheme() -> None:
    @dataclass(frozen=True)
    class Momentum(Scheme):
        """Differs in its methods alone."""

    assert identity(Momentum(**vars(fedavg()))) != identity(fedavg())


def test_arrivals_differ_by_kind_and_by_what_they_wrap() -> None:
    arrivals: list[Arrivals] = [
        *(adaptive(), fixed(), trace()),
        *(CohortArrivals(adaptive(), 2), CohortArrivals(adaptive(), 3), CohortArrivals(fixed(), 2)),
    ]
    assert len({identity(each) for each in arrivals}) == len(arrivals)


class Large(ByObject):
    pass


def test_objects_that_are_too_large_to_hash_are_equal_to_themselves_alone() -> None:
    first, second = Large(), Large()
    assert identity(first) == identity(first)
    assert identity(first) != identity(second)
    assert identity((1, first)) != identity((1, second))
    assert identity(FEDERATION) != identity(replace(FEDERATION)), "although the rows are the same"
    seen = set()
    for _ in range(50):  # a new object may lie where a deleted one was
        seen.add(identity(Large()))
    assert len(seen) == 50


@dataclass
class Plain:
    number: object
    remark: str = field(default="", metadata=NOT_IDENTITY)


class Opaque:
    pass


@pytest.mark.parametrize(
    "value",
    [Opaque(), object(), lambda: 0, iter([1]), np.array([Opaque()]), [Opaque()], {"a": Opaque()}, Plain(Opaque()), 1j],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_told_apart_reliably_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="has no identity"):
        identity(value)


def test_the_order_of_a_mapping_and_of_a_set_does_not_matter() -> None:
    assert identity({"a": 1, "b": [2, 3]}) == identity({"b": [2, 3], "a": 1})
    assert identity({"a": 1, "b": 2}) != identity({"a": 2, "b": 1})
    assert identity(frozenset({1, 2, "x"})) == identity(frozenset({"x", 2, 1}))
    assert identity((1, 2)) != identity((2, 1))


def test_values_of_different_types_differ_although_python_calls_them_equal() -> None:
    values = [1, 1.0, True, "1", b"1", np.float64(1), np.float32(1), np.int64(1), np.array(1.0), (1,), [1], {1}, None]
    values += [{"1": 1}, {1: 1}, Path("1"), Plain(1), Plain(1.0), 0, 0.0, -0.0, False, "", (), [], frozenset()]
    assert len({identity(value) for value in values}) == len(values)


def test_boundaries_between_values_count() -> None:
    different = [("ab", "c"), ("a", "bc"), ("abc",), (("ab",), "c"), ("ab", ("c",)), ["ab", "c"]]
    assert len({identity(value) for value in different}) == len(different)
    a = np.arange(6.0)
    assert len({identity(x) for x in (a, a.reshape(2, 3), a.reshape(3, 2), a[::-1], a.astype(">f8"))}) == 5
    assert identity(np.asfortranarray(a.reshape(2, 3))) == identity(a.reshape(2, 3)), (
        "how it lies in memory is no content"
    )


def test_a_field_is_excluded_where_it_is_declared() -> None:
    assert identity(Plain(1, "this")) == identity(Plain(1, "that"))
    assert identity(Plain(1)) != identity(Plain(2))


@dataclass(frozen=True)
class Moved:
    """A class that was called `Plain` when its fingerprints were made."""

    identity_name: ClassVar[str] = f"{__name__}.Plain"

    number: object


@dataclass(frozen=True)
class Heir(Moved):
    """A subclass has a name of its own."""


def test_a_class_that_has_moved_keeps_its_fingerprints() -> None:
    assert identity(Moved(1)) == identity(Plain(1))
    assert identity(Heir(1)) not in (identity(Plain(1)), identity(Moved(1)))
