"""Throws garbage at everything that checks messages: ``python -m tests.federation.fuzz_checks --seconds 60``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl.federation._checks import (
    MASKED,
    BadMessage,
    checked_answer,
    checked_hello,
    checked_update,
    checked_upload,
)
from codedfl.federation.transport import Packet
from codedfl.streams import Streams
from codedfl.uploads import CodedFactor, CodedRows, Mean, Subspace, Terms, Upload

DIMENSION, OUTPUTS, CODED, RANK = 3, 2, 6, 2
SAMPLES, BATCH, ROUND = 40, 10, 7


@dataclass(frozen=True)
class Case:
    """One use of a validator, and a message that it must accept."""

    name: str
    check: Callable[[Packet], object]
    valid: Packet
    optional: frozenset[str] = frozenset()


TERMS = Terms(DIMENSION, OUTPUTS, CODED, 1.5, 1.0, Streams(0))
UPLOADS: dict[str, Upload] = {
    each.name: each for each in (CodedRows(), CodedFactor(), Subspace(rank=RANK), Mean(curvature="mean"))
}


def _upload(kind: str, arrays: Mapping[str, Any], noise_variance: float = 0.5, **more: Any) -> Case:
    values: dict[str, Any] = {
        "device": "north",
        "kind": kind,
        "coded_samples": CODED,
        "noise_variance": noise_variance,
    }
    return Case(
        f"{kind} upload, noise {noise_variance}",
        lambda packet: checked_upload(
            packet,
            device="north",
            upload=UPLOADS["rows" if kind == MASKED else kind],
            terms=TERMS,
            samples=SAMPLES,
            masked=kind == MASKED,
        ),
        Packet(arrays, {**values, "label_noise_variance": 0.0, **more}),
    )


def _cases() -> list[Case]:
    rng = np.random.default_rng(0)

    def single(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    def words(*shape: int) -> Any:
        return rng.integers(0, 2**64, shape, np.uint64)

    hello: dict[str, Any] = {"device": "north", "prescription": "ab12", "samples": SAMPLES}
    sketch = {"products": rng.normal(size=(DIMENSION, RANK)), "label_products": rng.normal(size=(DIMENSION, OUTPUTS))}
    factor = np.triu(single(DIMENSION + OUTPUTS, DIMENSION + OUTPUTS), 1) + np.diag(np.abs(single(DIMENSION + OUTPUTS)))
    update: dict[str, Any] = {"device": "north", "round": ROUND, "batch_size": BATCH, "compute_s": 0.25}
    answer: dict[str, Any] = {"device": "north", "phase": "keys", "public": bytes(32), "share": b"12"}
    return [
        Case("hello", lambda packet: checked_hello(packet, device="north", prescription="ab12"), Packet({}, hello)),
        Case(
            "hello with a contract",
            lambda packet: checked_hello(packet, device="north", prescription="ab12", menu_items=4),
            Packet({}, {**hello, "smoothness": 2.5, "choice": 3, "version": "0.1.0"}),
            frozenset(("smoothness", "choice", "version")),
        ),
        _upload("rows", {"features": single(CODED, DIMENSION), "labels": single(CODED, OUTPUTS)}),
        _upload("factor", {"factor": factor}),
        _upload("subspace", {**sketch, "energy": np.array([3.0])}, 0.0, rows=SAMPLES),
        _upload("subspace", {**sketch, "energy": np.array([-3.0])}, 0.5, rows=1),
        _upload("mean", {"total": rng.normal(size=DIMENSION)}, 0.5),
        _upload("masked", {"features": words(CODED, DIMENSION), "labels": words(CODED, OUTPUTS)}),
        Case(
            "update",
            lambda packet: checked_update(
                packet, device="north", round=ROUND, travels={"update": (DIMENSION, OUTPUTS)}, largest_batch=BATCH
            ),
            Packet({"update": single(DIMENSION, OUTPUTS)}, update),
        ),
        Case(
            "answer",
            lambda packet: checked_answer(
                packet, device="north", phase="keys", names=["public"], optional=["share"], most_bytes=32
            ),
            Packet({}, answer),
            frozenset(("share",)),
        ),
    ]


CASES = _cases()

DTYPES = [
    *(np.dtype(f"{order}{name}") for name in ("f4", "f8", "u8", "i8") for order in "<>"),
    *map(np.dtype, ("<f2", "<i4", "u1", "?", "<c8", "<c16", "<U3", "S3", "<M8[s]", "<m8[D]", "V5", "O")),
    np.dtype([("a", "<f4"), ("b", "<i8")]),
    np.dtype(np.longdouble),
]
SHAPES = [
    (),
    (0,),
    (1,),
    (2,),
    (DIMENSION, OUTPUTS),
    (OUTPUTS, DIMENSION),
    (CODED, DIMENSION),
    (CODED, OUTPUTS),
    (DIMENSION + OUTPUTS, DIMENSION + OUTPUTS),
    (DIMENSION, RANK),
    (1, DIMENSION, OUTPUTS),
    (DIMENSION * OUTPUTS,),
    (0, DIMENSION),
]


NUMBERS = [
    0,
    -1,
    1,
    True,
    CODED,
    SAMPLES,
    SAMPLES + 1,
    BATCH,
    ROUND,
    2**40 + 1,
    2**63,
    10**5000,
    -(10**5000),
    1e31,
    5e-324,
]
TEXTS = ["north", "ab12", "rows", "factor", "subspace", "mean", "masked", "keys", "x" * 2**20, "\ud800\n"]
OTHERS = [
    None,
    (),
    {},
    [1, 10**5000],
    ["x"],
    object(),
    np.float32(1),
    np.int64(CODED),
    np.str_("north"),
    1j,
    np.zeros(3),
    int,
]
ENTRIES = [np.nan, np.inf, -np.inf, 3e38, 1.1e15, -1.1e30, 1e-45, -1.0, 0.0]

any_value = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.sampled_from(OTHERS),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=40),
)
NAMES = sorted({name for case in CASES for name in (*case.valid.arrays, *case.valid.values)})
any_name: st.SearchStrategy[Any] = st.sampled_from([*NAMES, "", "x" * 2**20, "\n", "Device", 3, None, b"device"])
any_dtype, any_shape = st.sampled_from(DTYPES), st.sampled_from(SHAPES)
any_content = st.binary(min_size=1, max_size=64)
huge_shape = st.sampled_from([(2**38, 2**20), (1,) * 32, (2**58,)])
one_in_three = st.sampled_from([True, False, False])


def _of_bytes(dtype: np.dtype[Any], shape: tuple[int, ...], content: bytes) -> Any:
    if dtype.hasobject:
        return np.empty(shape, dtype)
    count = int(np.prod(shape))
    return np.frombuffer(content * (count * dtype.itemsize + 1), dtype, count).reshape(shape).copy()


def _with_entry(array: Any, position: int, entry: float) -> Any:
    """Return an array with another entry somewhere, NaN included."""
    changed = array.astype(np.float64) if array.dtype.kind == "u" else array.copy()
    changed.flat[position % array.size] = entry
    return changed


any_array = st.one_of(
    st.builds(_of_bytes, any_dtype, any_shape, any_content),
    st.builds(lambda dtype, shape: np.broadcast_to(np.zeros((), dtype), shape), any_dtype, huge_shape),
    any_value,
)


def near_array(array: Any) -> st.SearchStrategy[Any]:
    """Return what differs from a valid array in type, shape, order in memory, class or one entry."""
    return st.one_of(
        st.builds(_of_bytes, st.just(array.dtype), st.just(array.shape), any_content),
        st.builds(_of_bytes, any_dtype, st.just(array.shape), any_content),
        st.builds(_of_bytes, st.just(array.dtype), any_shape, any_content),
        st.builds(_with_entry, st.just(array), st.integers(0, 100), st.sampled_from(ENTRIES)),
        st.sampled_from(
            [np.asfortranarray(array), array[::-1], np.repeat(array, 2, 0)[::2], np.ma.masked_array(array)]
        ),
    )


garbage = st.builds(
    Packet, st.dictionaries(any_name, any_array, max_size=4), st.dictionaries(any_name, any_value, max_size=6)
)


def packets(valid: Packet) -> st.SearchStrategy[Packet]:
    """Return garbage, and valid messages with garbage in a few places."""
    near = {name: near_array(array) | any_array for name, array in valid.arrays.items()}

    @st.composite
    def almost(draw: st.DrawFn) -> Packet:
        arrays: dict[Any, Any] = dict(valid.arrays)
        values: dict[Any, Any] = dict(valid.values)
        for name, strategy in near.items():
            if draw(one_in_three):
                arrays[name] = draw(strategy)
        changed = draw(st.sampled_from([None, None, *values]))
        if changed is not None:
            values[changed] = draw(any_value)
        fate = draw(st.integers(0, 9))
        if fate == 0:
            (values if draw(st.booleans()) else arrays)[draw(any_name)] = draw(any_value)
        if fate == 1:
            del values[draw(st.sampled_from(list(values)))]
        return Packet(arrays, values)

    likely = almost()
    return st.one_of(likely, likely, likely, garbage)


def assert_sound(case: Case, packet: Packet) -> bool:
    """Check that a message is refused in one sentence, or that what is returned keeps its promises; return whether it passed."""
    try:
        result = case.check(packet)
    except BadMessage as refusal:
        sentence = str(refusal)
        assert sentence.endswith("."), sentence
        assert sentence.isprintable(), sentence
        assert len(sentence) < 500, sentence
        return False
    parts = [getattr(result, item.name) for item in fields(result)]  # type: ignore[arg-type]
    arrays = [*(part for part in parts if isinstance(part, np.ndarray)), *dict(getattr(result, "arrays", {})).values()]
    assert len(arrays) == len(case.valid.arrays)
    for array in arrays:
        assert type(array) is np.ndarray
        assert array.flags.c_contiguous
        assert array.flags.owndata
        assert array.dtype.isnative
        assert not array.flags.writeable
        assert np.isfinite(array).all()
        assert not any(np.shares_memory(array, given) for given in packet.arrays.values())
    numbers = [part for part in parts if isinstance(part, int | float)]
    assert all(abs(number) < 1e300 for number in numbers if not isinstance(number, bool))
    return True


def fuzz(case: Case, examples: int) -> tuple[int, int]:
    """Try a validator on garbage; return how many messages were tried and how many passed."""
    counts = [0, 0]

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(packets(case.valid))
    def attempt(packet: Packet) -> None:
        counts[0] += 1
        counts[1] += assert_sound(case, packet)

    attempt()
    return counts[0], counts[1]


def fuzz_for(seconds: float, cases: Sequence[Case] = CASES, examples: int = 200) -> int:
    """Try all validators in turn, at least once and until the time is over; return 1 after an undeclared exception, else 0."""
    end = time.monotonic() + seconds
    totals = {case.name: (0, 0) for case in cases}
    turn = 0
    while turn < len(cases) or time.monotonic() < end:
        case = cases[turn % len(cases)]
        try:
            tried, passed = fuzz(case, examples)
        except Exception:
            print(f"{case.name}: undeclared exception", file=sys.stderr)
            traceback.print_exc()
            return 1
        totals[case.name] = totals[case.name][0] + tried, totals[case.name][1] + passed
        turn += 1
    for name, (tried, passed) in totals.items():
        print(f"{name}: {tried} messages tried, {tried - passed} refused, {passed} valid")
    print(f"{sum(tried for tried, _ in totals.values())} messages tried, no exception but BadMessage")
    return 0


def without(packet: Packet, name: str) -> Packet:
    """Return a message with one array or value left out."""
    return Packet(
        {key: array for key, array in packet.arrays.items() if key != name},
        {key: value for key, value in packet.values.items() if key != name},
    )


def with_array(packet: Packet, name: str, array: Any) -> Packet:
    """Return a message with another array."""
    return replace(packet, arrays={**packet.arrays, name: array})


def with_value(packet: Packet, name: str, value: Any) -> Packet:
    """Return a message with another value."""
    return replace(packet, values={**packet.values, name: value})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try")
    sys.exit(fuzz_for(parser.parse_args().seconds))
