from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from codedfl.federation._checks import (
    BadMessage,
    Hello,
    ReceivedUpdate,
    bounded,
    checked_answer,
    checked_hello,
    typical_norm,
)
from codedfl.federation.transport import Packet
from codedfl.uploads import Received
from tests.federation.fuzz_checks import (
    BATCH,
    CASES,
    CODED,
    DIMENSION,
    ROUND,
    SAMPLES,
    Case,
    assert_sound,
    fuzz,
    fuzz_for,
    with_array,
    with_value,
    without,
)

BY_NAME = {case.name: case for case in CASES}
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

WRONG_TYPES: list[Any] = [None, "", "1", b"north", [], [1], (1,), {}, np.int64(1), np.float64(1), 1j, object()]

WRONG_VALUES: dict[str, list[Any]] = {
    "device": [*WRONG_TYPES, "south", "north ", "North", "north\n", "x" * 2**20, 0, True],
    "prescription": [*WRONG_TYPES, "ab13", "x" * 2**20, 0],
    "kind": [*WRONG_TYPES, "statistics", "ROWS"],
    "phase": [*WRONG_TYPES, "shares", 1],
    "samples": [*WRONG_TYPES, True, 0, -1, 2**40 + 1, 10**5000, 40.0, np.nan],
    "coded_samples": [*WRONG_TYPES, True, CODED - 1, CODED + 1, float(CODED), 10**5000],
    "rows": [*WRONG_TYPES, True, 0, SAMPLES + 1, 1.0, 10**5000],
    "round": [*WRONG_TYPES, True, ROUND - 1, ROUND + 1, float(ROUND), -ROUND],
    "batch_size": [*WRONG_TYPES, True, 0, BATCH + 1, 1.0],
    "choice": [*WRONG_TYPES, True, -2, 4, 1.0],
    "noise_variance": [*WRONG_TYPES, True, -1e-9, np.nan, np.inf, 1.1e30, 10**5000],
    "label_noise_variance": [*WRONG_TYPES, False, -1, np.nan, -np.inf, 1.1e30],
    "smoothness": [*WRONG_TYPES, True, 0, 0.0, -1.0, np.nan, np.inf, 10**5000],
    "compute_s": [*WRONG_TYPES, True, -0.1, np.nan, np.inf, 1.1e6],
    "version": [None, b"1", 1, True, "x" * 65, "a\nb", "\ud800"],
    "public": [None, "", 1, True, b"", bytes(33), b"x" * 2**20, "x" * 32, bytearray(32), [bytes(32)]],
    "share": [None, "", 1, b"", bytes(33)],
}
"""What no field of that name may hold. The right types of other values are left to each test."""


def refusal(case: Case, packet: Packet) -> str:
    """Return the sentence in which a message is refused."""
    with pytest.raises(BadMessage) as caught:
        case.check(packet)
    assert not assert_sound(case, packet)
    return str(caught.value)


def wrong_arrays(array: Any) -> Iterator[Any]:
    """Yield what differs from an array in its type or its shape."""
    for dtype in ("<f2", "<f4", "<f8", ">f4", ">f8", "<i8", "<u8", ">u8", "?", "<c8", "<U3", "S8", "<M8[s]", "O"):
        if np.dtype(dtype) != array.dtype:
            yield np.zeros(array.shape, dtype)
    yield np.zeros(array.shape, [("a", array.dtype)])
    yield array[None]
    yield array[..., None]
    yield array.reshape(-1, 1, 1)
    yield array[:-1]
    yield np.concatenate([array, array])
    yield array[..., :0]
    yield np.zeros((), array.dtype)
    yield np.broadcast_to(np.zeros((), array.dtype), (2**38, 2**20))
    yield from (None, 1.0, array.tolist(), array.tobytes(), "array")


@every_case
def test_a_valid_message_passes(case: Case) -> None:
    assert assert_sound(case, case.valid)


@every_case
def test_nothing_but_the_declared_exception_is_raised(case: Case) -> None:
    tried, _ = fuzz(case, examples=50)
    assert tried >= 50


@pytest.mark.slow
def test_the_fuzz_reports_an_undeclared_exception(capsys: pytest.CaptureFixture[str]) -> None:
    update = BY_NAME["update"]
    trusting = Case("trusting", lambda packet: packet.arrays["elsewhere"], update.valid)
    assert fuzz_for(0.0, [trusting]) == 1
    assert "trusting: undeclared exception" in capsys.readouterr().err
    assert fuzz_for(0.0, [update], examples=20) == 0
    assert "20 messages tried, no exception but BadMessage" in capsys.readouterr().out


@every_case
def test_a_missing_array_or_value_is_named(case: Case) -> None:
    for name in {*case.valid.arrays, *case.valid.values} - case.optional:
        assert f"{name!r} is missing, expected " in refusal(case, without(case.valid, name))
    for name in case.optional:
        assert assert_sound(case, without(case.valid, name))


@every_case
def test_an_unknown_array_or_value_is_named(case: Case) -> None:
    assert "the array 'extra' is unknown" in refusal(case, with_array(case.valid, "extra", np.zeros(1)))
    assert "the value 'extra' is unknown" in refusal(case, with_value(case.valid, "extra", 1))
    assert "the value 'Device' is unknown" in refusal(case, with_value(case.valid, "Device", "north"))
    long = refusal(case, with_value(case.valid, "x" * 2**20, 1))
    assert "(1048576 in all)" in long


@every_case
def test_a_value_of_a_wrong_type_or_range_is_named(case: Case) -> None:
    for name in case.valid.values:
        for value in WRONG_VALUES[name]:
            sentence = refusal(case, with_value(case.valid, name, value))
            assert sentence.startswith(f"{name} = "), sentence
            assert ", expected " in sentence


@every_case
def test_an_array_of_a_wrong_type_or_shape_is_named(case: Case) -> None:
    for name, array in case.valid.arrays.items():
        for wrong in wrong_arrays(array):
            sentence = refusal(case, with_array(case.valid, name, wrong))
            assert sentence.startswith(f"{name} "), sentence
            assert ", expected " in sentence


@every_case
def test_one_entry_that_is_not_finite_or_absurd_is_found(case: Case) -> None:
    for name, array in case.valid.arrays.items():
        if array.dtype.kind != "f":
            continue
        for position in (0, array.size // 2, array.size - 1):
            for entry in (np.nan, np.inf, -np.inf, 1.1e30, -1.1e30):
                changed = array.copy()
                changed.flat[position] = entry
                sentence = refusal(case, with_array(case.valid, name, changed))
                index = tuple(map(int, np.unravel_index(position, array.shape)))
                assert f"{name} has 1 value(s) such as " in sentence
                assert f"the first at index {index}, expected " in sentence


@pytest.mark.parametrize("name", ["rows upload, noise 0.5", "update"])
def test_a_bad_entry_in_a_later_block_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.typing.ENTRIES_PER_BLOCK", 2)
    case = BY_NAME[name]
    assert assert_sound(case, case.valid)
    for field, array in case.valid.arrays.items():
        changed = array.copy()
        changed[-1] = np.nan
        sentence = refusal(case, with_array(case.valid, field, changed))
        assert f"{field} has {array.shape[1]} value(s)" in sentence
        assert f"the first at index ({len(array) - 1}, 0)" in sentence


@every_case
def test_the_order_in_memory_does_not_matter(case: Case) -> None:
    plain: Any = case.check(case.valid)
    for name, array in case.valid.arrays.items():
        for same in (np.asfortranarray(array), np.repeat(array, 2, 0)[::2], array[::-1].copy()[::-1]):
            result: Any = case.check(with_array(case.valid, name, same))
            assert result.arrays[name].tobytes() == plain.arrays[name].tobytes()


def test_what_is_returned_is_not_changed_by_the_sender_afterwards() -> None:
    case = BY_NAME["update"]
    given = case.valid.arrays["update"].copy()
    result = case.check(with_array(case.valid, "update", given))
    assert isinstance(result, ReceivedUpdate)
    before = result.arrays["update"].copy()
    given[...] = np.nan
    assert np.array_equal(result.arrays["update"], before)
    with pytest.raises(ValueError, match="read-only"):
        result.arrays["update"][0, 0] = 1


def test_the_numbers_of_a_hello_are_returned() -> None:
    values: dict[str, Any] = {"device": "north", "prescription": "ab12", "samples": 2**40}

    def hello(menu_items: int = 0, **more: Any) -> Hello:
        packet = Packet({}, values | more)
        return checked_hello(packet, device="north", prescription="ab12", menu_items=menu_items)

    assert hello() == Hello(2**40, None, None, joins=True, version="")
    assert hello(choice=-1) == Hello(2**40, None, None, joins=False, version="")
    assert hello(3, choice=2, smoothness=7, version="0.2") == Hello(2**40, 7.0, 2, joins=True, version="0.2")
    assert hello(3, choice=0).choice == 0
    with pytest.raises(BadMessage, match=r"^choice = 0, expected -1\.$"):
        hello(choice=0)
    with pytest.raises(BadMessage, match=r"^choice = 3, expected a whole number from -1 to 2\.$"):
        hello(3, choice=3)


def test_the_numbers_of_an_upload_are_returned() -> None:
    noisy = BY_NAME["subspace upload, noise 0.5"]
    result = noisy.check(with_value(noisy.valid, "label_noise_variance", 2))
    assert isinstance(result, Received)
    assert (result.kind, result.noise_variance, result.label_noise_variance, result.rows) == ("subspace", 0.5, 2.0, 1)
    assert set(result.arrays) == {"products", "label_products", "energy"}
    for name, array in noisy.valid.arrays.items():
        assert np.array_equal(result.arrays[name], array)
    rows = BY_NAME["rows upload, noise 0.5"]
    received = rows.check(rows.valid)
    assert isinstance(received, Received)
    assert (received.kind, received.rows) == ("rows", 0)


def test_the_numbers_of_an_update_are_returned() -> None:
    case = BY_NAME["update"]
    result = case.check(with_value(case.valid, "compute_s", 3))
    assert isinstance(result, ReceivedUpdate)
    assert (result.batch_size, result.compute_s) == (BATCH, 3.0)
    assert isinstance(result.compute_s, float)


def test_an_upload_of_another_kind_is_refused() -> None:
    uploads = {case.valid.values["kind"]: case for case in CASES if "kind" in case.valid.values}
    for asked, case in uploads.items():
        for sent, other in uploads.items():
            if sent != asked:
                refusal(case, other.valid)


def test_coded_data_is_held_to_what_its_squares_leave_finite() -> None:
    for name in ("rows upload, noise 0.5", "factor upload, noise 0.5"):
        case = BY_NAME[name]
        for field, array in case.valid.arrays.items():
            changed = array.copy()
            changed[0, -1] = 1.01e15
            assert "expected numbers from -1e+15 to 1e+15" in refusal(case, with_array(case.valid, field, changed))
            changed[0, -1] = 0.99e15
            assert assert_sound(case, with_array(case.valid, field, changed))
    largest = np.float32(1e15)
    assert np.isfinite(np.sum(np.full(100_000, largest * largest)))


def test_a_factor_is_an_upper_triangle_with_a_diagonal_of_zero_or_more() -> None:
    case = BY_NAME["factor upload, noise 0.5"]
    factor = case.valid.arrays["factor"]
    for row in range(len(factor)):
        for column in range(row):
            changed = factor.copy()
            changed[row, column] = 1e-30
            assert "below its diagonal" in refusal(case, with_array(case.valid, "factor", changed))
        changed = factor.copy()
        changed[row, row] = -1e-30
        assert "on its diagonal, expected zero or more" in refusal(case, with_array(case.valid, "factor", changed))
        changed[row, row] = 0
        assert assert_sound(case, with_array(case.valid, "factor", changed))
    assert "below its diagonal" in refusal(case, with_array(case.valid, "factor", factor.T))


def test_an_energy_below_zero_needs_noise() -> None:
    exact, noisy = BY_NAME["subspace upload, noise 0.0"], BY_NAME["subspace upload, noise 0.5"]
    negative = np.array([-1e-9])
    assert "since no noise was added" in refusal(exact, with_array(exact.valid, "energy", negative))
    assert assert_sound(noisy, with_array(noisy.valid, "energy", negative))


def test_a_masked_upload_may_hold_any_words() -> None:
    case = BY_NAME["masked upload, noise 0.5"]
    features = np.full((CODED, DIMENSION), 2**64 - 1, np.uint64)
    assert assert_sound(case, with_array(case.valid, "features", features))


def test_the_byte_strings_of_an_answer_are_returned() -> None:
    packet = Packet({}, {"device": "north", "phase": "shares", "to.south": b"12", "to.west": b"3"})
    arguments: dict[str, Any] = {"device": "north", "phase": "shares", "names": ["to.south"], "optional": ["to.west"]}
    answer = checked_answer(packet, most_bytes=2, **arguments)
    assert (answer.phase, answer.content) == ("shares", {"to.south": b"12", "to.west": b"3"})
    with pytest.raises(BadMessage, match=r"^to\.south = b'12', expected 1 byte\(s\)\.$"):
        checked_answer(packet, most_bytes=1, **arguments)
    with pytest.raises(BadMessage, match=r"^to\.west = b'3', expected 2 byte\(s\)\.$"):
        checked_answer(packet, most_bytes=2, least_bytes=2, **arguments)


def test_one_sentence_says_what_was_wrong() -> None:
    case = BY_NAME["update"]
    update = case.valid.arrays["update"]
    assert refusal(case, with_value(case.valid, "round", 3)) == "round = 3, expected 7."
    assert refusal(case, with_value(case.valid, "batch_size", True)) == (
        "batch_size = True, expected a whole number from 1 to 10."
    )
    assert refusal(case, with_array(case.valid, "update", update.astype(">f4"))) == (
        "update has the type >f4, expected <f4 (float32)."
    )
    assert refusal(case, with_array(case.valid, "update", update.T)) == "update has the shape (2, 3), expected (3, 2)."
    assert refusal(case, with_value(case.valid, "compute_s", float("nan"))) == (
        "compute_s = nan, expected a number from 0 to 1e+06."
    )


def test_a_round_is_compared_before_any_array_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    case = BY_NAME["update"]
    monkeypatch.setattr(
        "codedfl.federation._checks._messages.checked_array", lambda *_: pytest.fail("an array was looked at")
    )
    refusal(case, with_value(case.valid, "round", ROUND + 1))


def test_an_update_within_the_bound_is_returned_as_it_is() -> None:
    update = np.array([[3.0], [4.0]], np.float32)
    for reference, factor in ((5.0, 1.0), (0.5, 10.0), (1e9, 2.0), (None, 1.0)):
        same, scaled = bounded(update, reference, factor)
        assert same is update
        assert not scaled


def test_a_larger_update_keeps_its_direction_and_gets_the_norm_of_the_bound() -> None:
    update = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) * np.float32(1e20)
    smaller, scaled = bounded(update, 0.25, 4.0)
    assert scaled
    assert smaller.dtype == np.float32
    # Every entry is rounded once, so the norm is right to half a unit in the last place.
    assert np.linalg.norm(smaller.astype(np.float64)) == pytest.approx(1.0, rel=2.0**-24)
    ratio = smaller.astype(np.float64) / update
    assert np.ptp(ratio) <= 2.0**-23 * ratio.mean()


def test_an_update_whose_squares_overflow_in_float32_is_bounded() -> None:
    smaller, scaled = bounded(np.full((2, 2), 1e30, np.float32), 1.0, 2.0)
    assert scaled
    assert np.array_equal(smaller, np.ones((2, 2), np.float32))


def test_where_others_send_nothing_nothing_is_let_through() -> None:
    smaller, scaled = bounded(np.ones((2, 1), np.float32), 0.0, 10.0)
    assert scaled
    assert not smaller.any()


def test_the_typical_norm_is_the_median_of_the_others() -> None:
    norms = {"a": 4.0, "b": 1.0, "c": 2.0, "d": 8.0}
    for name in norms:
        others = [norm for other, norm in norms.items() if other != name]
        assert typical_norm(norms, name) == statistics.median(others)
    assert typical_norm(norms, "unknown") == 3.0
    assert typical_norm({"a": 4.0}, "a") is None
    assert typical_norm({}, "a") is None


@pytest.mark.parametrize(("factor", "expected"), [(3.0, 2.0), (1.5, 0.75), (1.0, 0.5)])
def test_the_bound_biases_the_model_as_documented(factor: float, expected: float) -> None:
    """Gradients w + 1, w - 1 and w - 6 cancel at 2, where their norms are 3, 1 and 4, so a factor of 2 or more changes nothing.

    With less, the third is held to the factor times the median of the others, which is 1 where |w| < 1: 2 w = factor there.
    """
    model = 6.0
    for _ in range(2000):
        gradients = {"a": model + 1, "b": model - 1, "c": model - 6}
        norms = {name: abs(gradient) for name, gradient in gradients.items()}
        update, _ = bounded(np.array([[gradients["c"]]]), typical_norm(norms, excluding="c"), factor)
        model -= 0.05 * (gradients["a"] + gradients["b"] + float(update[0, 0]))
    assert model == pytest.approx(expected, abs=1e-9)
