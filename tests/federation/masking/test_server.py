"""The protocol as the server sees it: devices that drop out, and what a curious server can see."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.errors import InputError
from codedfl.federation.masking._device import Masker
from codedfl.federation.masking._keys import masking_key
from codedfl.federation.masking._participants import Participants
from codedfl.federation.masking._ring import RingArray, apply_masks, to_ring
from codedfl.federation.masking._server import MaskedSum
from codedfl.federation.masking._terms import MaskingTerms
from codedfl.typing import FloatArray
from tests.federation.masking.support import PHASES, Play, identity_keys, make_uploads, names

FIVE = names(5)
TERMS = MaskingTerms("ward", FIVE, roster=None)


def fixed_point_sum(play: Play, survivors: tuple[str, ...]) -> list[FloatArray]:
    """Return the exact sum of the rounded uploads."""
    return [
        np.sum([np.rint(play.data[name][part].astype(np.float64) * 2.0**24) for name in survivors], axis=0) / 2.0**24
        for part in (0, 1)
    ]


def assert_sum_over(play: Play, survivors: tuple[str, ...]) -> None:
    for got, wanted in zip(play.server.total(), fixed_point_sum(play, survivors), strict=True):
        assert np.array_equal(got, wanted)


# Devices that drop out


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("dropped", FIVE)
def test_any_device_may_drop_out_in_any_phase(phase: str, dropped: str) -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.run(missing={phase: [dropped]})
    survivors = play.server.close_uploads()
    assert survivors == (FIVE if phase in ("agree", "answer") else tuple(name for name in FIVE if name != dropped))
    assert_sum_over(play, survivors)


def test_devices_may_drop_out_in_different_phases() -> None:
    devices = names(8)
    terms = MaskingTerms("ward", devices, roster=None, threshold=5)
    play = Play(terms, make_uploads(devices))
    play.run(missing={"announce": devices[:1], "share": devices[1:2], "upload": devices[7:]})
    assert play.server.close_uploads() == devices[2:7]
    assert_sum_over(play, devices[2:7])


@pytest.mark.parametrize("phase", PHASES)
def test_too_few_devices_are_refused_with_the_number_needed(phase: str) -> None:
    play = Play(TERMS, make_uploads(FIVE))

    def whole() -> None:
        play.run(missing={phase: FIVE[3:]})
        play.server.total()

    with pytest.raises(InputError, match="3 of 5 devices are too few, a sum-only upload needs 4 or more"):
        whole()


def test_a_device_that_arrives_in_time_after_all_is_enough() -> None:
    """A refusal changes nothing, so the server may wait on."""
    play = Play(TERMS, make_uploads(FIVE))
    play.run(until="share")
    with pytest.raises(InputError, match="masked uploads: 3 of 5 devices are too few"):
        play.upload(FIVE[3:])
    play.upload(FIVE[:3])
    play.agree()
    play.answer(FIVE[4:])
    assert_sum_over(play, FIVE)


# What a server can see


def is_uniform(array: RingArray) -> bool:
    """Say whether bytes are uniform: a chi-square statistic between the quantiles at one in a million on either side."""
    counts = np.bincount(np.ascontiguousarray(array).view(np.uint8).ravel(), minlength=256)
    statistic = stats.chisquare(counts).statistic
    low, high = stats.chi2(df=255).ppf([1e-6, 1 - 1e-6])
    return bool(low < statistic < high)


def constant_uploads() -> dict[str, tuple[FloatArray, FloatArray]]:
    return {name: (np.full((64, 64), 1.0 + index), np.ones((64, 1))) for index, name in enumerate(FIVE)}


def test_the_test_of_uniformity_sees_data() -> None:
    assert not is_uniform(to_ring("x", constant_uploads()[FIVE[0]][0], TERMS))
    assert not is_uniform(to_ring("x", np.random.default_rng(0).normal(size=(64, 64)), TERMS))


def test_a_masked_upload_looks_uniform() -> None:
    play = Play(TERMS, constant_uploads())
    play.run(until="upload")
    for name in FIVE:
        assert is_uniform(play.masked[name][0])


def remove(play: Play, name: str, peers: tuple[str, ...], self_seed: bytes | None) -> RingArray:
    """Return masked features without the masks that a server finds with the mask seeds of peers and the self-mask seed."""
    everybody = Participants.verify(play.terms, play.server.close_keys())
    features, labels = (part.copy() for part in play.masked[name])
    masks = [
        everybody.pairwise_mask(masking_key(play.states[peer].mask_seed, "ward", peer), peer, name, of=name, sign=-1)
        for peer in peers
    ]
    if self_seed is not None:
        masks.append(everybody.self_mask(self_seed, name, -1))
    apply_masks([features, labels], masks)
    return features


def test_a_late_upload_of_a_dropped_device_stays_unreadable() -> None:
    """The server knows all pairwise masks of the device by then, but not its self mask; with that, it could read everything."""
    play = Play(TERMS, constant_uploads())
    play.run(late=FIVE[4:])
    assert_sum_over(play, FIVE[:4])
    late = FIVE[4]
    with pytest.raises(InputError, match="upload of device 'device-4': it is late or takes no part"):
        play.server.add(late, *play.masked[late])
    assert is_uniform(remove(play, late, FIVE[:4], self_seed=None))
    wanted = to_ring("x", play.data[late][0], TERMS)
    assert np.array_equal(remove(play, late, FIVE[:4], play.states[late].self_seed), wanted)
    shares = {name: play.server._answers[name][late] for name in FIVE[:4]}
    for name, share in shares.items():
        assert share == play.states[name].received[late][:16]
        assert share != play.states[name].received[late][16:]


def test_an_upload_of_a_survivor_stays_unreadable_after_unmasking() -> None:
    """The server knows its self mask and all masks with dropped devices, but none with another survivor."""
    play = Play(TERMS, constant_uploads())
    play.run(late=FIVE[4:])
    name = FIVE[0]
    seed = play.states[name].self_seed
    assert is_uniform(remove(play, name, FIVE[4:], seed))
    assert is_uniform(remove(play, name, FIVE[2:], seed))
    assert np.array_equal(remove(play, name, FIVE[1:], seed), to_ring("x", play.data[name][0], TERMS))


def test_the_server_cannot_tell_who_of_two_has_which_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swap the data of two devices, with the same secrets: all that the server receives is explained by either assignment.

    Every message but the two masked uploads is the same. These two differ by plus and minus the same ring elements, and
    the mask between the two devices, which the server never learns, enters one with plus and the other with minus.
    """
    uploads = make_uploads(FIVE)
    first, second = FIVE[1], FIVE[3]
    worlds = []
    for data in (uploads, {**uploads, first: uploads[second], second: uploads[first]}):
        monkeypatch.setattr("Crypto.Protocol.SecretSharing.rng", Random(5).randbytes)
        play = Play(TERMS, data)
        play.run(missing={"upload": FIVE[4:]})
        worlds.append(play)
    one, other = worlds
    assert one.server.to_bytes() == other.server.to_bytes()
    for got, wanted in zip(one.server.total(), other.server.total(), strict=True):
        assert np.array_equal(got, wanted)
    for name in (FIVE[0], FIVE[2]):
        assert np.array_equal(one.masked[name][0], other.masked[name][0])
    for part in (0, 1):
        difference = to_ring("x", uploads[first][part], TERMS) - to_ring("x", uploads[second][part], TERMS)
        assert np.any(difference)
        assert np.array_equal(one.masked[first][part] - other.masked[first][part], difference)
        assert np.array_equal(other.masked[second][part] - one.masked[second][part], difference)


def test_the_server_cannot_open_shares() -> None:
    """Neither with keys of its own nor with the recovered masking key of a dropped device."""
    play = Play(TERMS, make_uploads(FIVE))
    play.run(until="share")
    everybody = Participants.verify(TERMS, play.server.close_keys())
    sealed = play.server.shares_for(FIVE[4])[FIVE[0]]
    for private in (X25519PrivateKey.generate(), masking_key(play.states[FIVE[4]].mask_seed, "ward", FIVE[4])):
        with pytest.raises(InputError, match="do not open"):
            everybody.unseal(private, FIVE[0], FIVE[4], sealed)


# Replies that are wrong


def test_one_wrong_answer_does_no_harm_if_there_is_one_to_spare() -> None:
    for liar in FIVE:
        play = Play(TERMS, make_uploads(FIVE))
        play.run(missing={"answer": [liar]})
        play.server.add_answer(liar, dict.fromkeys(FIVE, b"\x01" * 16))
        assert_sum_over(play, FIVE)


def test_a_wrong_answer_is_noticed_and_leaves_the_sums_alone() -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.run(missing={"upload": FIVE[4:], "answer": FIVE[3:]})
    _, right = play.maskers[FIVE[3]].unmask(play.states[FIVE[3]], FIVE[:4], play.server.close_agreement())
    for owner in (FIVE[0], FIVE[4]):
        wrong = MaskedSum.from_bytes(play.server.to_bytes(), TERMS, (5, 4, 2), play.server.sums)
        wrong.add_answer(FIVE[3], {**right, owner: b"\x01" * 16})
        with pytest.raises(InputError, match=f"answers: the shares do not recover the secret of device '{owner}'"):
            wrong.total()
        assert all(np.array_equal(*pair) for pair in zip(wrong.sums, play.server.sums, strict=True))
    play.server.add_answer(FIVE[3], right)
    assert_sum_over(play, FIVE[:4])


def test_forged_keys_are_refused_before_devices_see_them() -> None:
    private, public = identity_keys(FIVE)
    terms = MaskingTerms("ward", FIVE, roster=public)
    server = MaskedSum(terms, 1, 1, 1)
    published = Masker(terms, FIVE[0], private[FIVE[0]]).begin().published
    server.add_keys(FIVE[0], published)
    with pytest.raises(InputError, match="keys of device 'device-1': the signature"):
        server.add_keys(FIVE[1], published)


def test_replies_are_taken_once_and_may_be_repeated() -> None:
    play = Play(TERMS, make_uploads(FIVE))
    published = play.announce([FIVE[4]])
    play.server.add_keys(FIVE[0], published[FIVE[0]])
    with pytest.raises(InputError, match="keys of device 'device-0': this is not what it sent before"):
        play.server.add_keys(FIVE[0], published[FIVE[1]])
    with pytest.raises(InputError, match="keys of device 'device-4': it is late"):
        play.server.add_keys(FIVE[4], published[FIVE[1]])
    play.share()
    play.server.add_shares(FIVE[0], play.states[FIVE[0]].sealed)
    with pytest.raises(InputError, match="shares of device 'device-0': this is not what it sent before"):
        play.server.add_shares(FIVE[0], play.states[FIVE[1]].sealed)
    play.upload()
    with pytest.raises(InputError, match="upload of device 'device-0' is in the sum already"):
        play.server.add(FIVE[0], *play.masked[FIVE[0]])
    play.agree()
    play.answer()
    with pytest.raises(InputError, match="answer of device 'device-0': this is not what it sent before"):
        play.server.add_answer(FIVE[0], play.server._answers[FIVE[1]])
    assert_sum_over(play, FIVE[:4])
    assert_sum_over(play, FIVE[:4])


def test_malformed_uploads_are_refused_and_change_nothing() -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.run(until="share")
    good = np.zeros((5, 4), np.uint64), np.zeros((5, 2), np.uint64)
    bad: list[tuple[Any, Any, str]] = [
        (
            good[0].astype(np.float64),
            good[1],
            r"features of device 'device-0': float64 of shape \(5, 4\) must be uint64",
        ),
        (
            good[0],
            good[1][:, :1],
            r"labels of device 'device-0': uint64 of shape \(5, 1\) must be uint64 of shape \(5, 2\)",
        ),
        ([[1]], good[1], "features of device 'device-0': list must be uint64"),
        (np.ones((5, 4), np.uint64), None, "labels of device 'device-0': NoneType must be uint64"),
    ]
    for features, labels, message in bad:
        with pytest.raises(InputError, match=message):
            play.server.add(FIVE[0], features, labels)
        assert not any(np.any(part) for part in play.server.sums)
    with pytest.raises(InputError, match="upload of device 'mallory'"):
        play.server.add("mallory", *good)


def test_phases_come_in_order() -> None:
    server = MaskedSum(TERMS, 1, 1, 1)
    with pytest.raises(InputError, match=r"shares of device 'device-0': .* expects nobody yet"):
        server.add_shares(FIVE[0], {})
    with pytest.raises(InputError, match=r"shares of device 'device-0': .* expects nobody yet"):
        server.shares_for(FIVE[0])
    with pytest.raises(InputError, match="upload of device 'device-0'"):
        server.add(FIVE[0], np.zeros((1, 1), np.uint64), np.zeros((1, 1), np.uint64))
    with pytest.raises(InputError, match=r"signature of device 'device-0': .* expects nobody yet"):
        server.add_agreement(FIVE[0], b"")
    with pytest.raises(InputError, match=r"answer of device 'device-0': .* expects nobody yet"):
        server.add_answer(FIVE[0], {})
    with pytest.raises(InputError, match="masked uploads: 0 arrived and the phase is open"):
        server.total()
    with pytest.raises(InputError, match="rows = 0"):
        MaskedSum(TERMS, 0, 1, 1)


def test_nobody_answers_before_enough_have_agreed() -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.run(until="upload")
    with pytest.raises(InputError, match="signatures: 3 of 5 devices are too few"):
        play.agree(FIVE[3:])
    _, answer = play.maskers[FIVE[0]].unmask(play.states[FIVE[0]], FIVE, {})
    with pytest.raises(InputError, match=r"answer of device 'device-0': .* expects nobody yet"):
        play.server.add_answer(FIVE[0], answer)
    play.agree(FIVE[4:])
    play.server.add_answer(FIVE[0], answer)


# Restarts


@pytest.mark.parametrize("with_sums", [True, False])
def test_a_server_restarted_between_any_two_phases_gets_the_same_sum(with_sums: bool) -> None:
    private, public = identity_keys(FIVE)
    terms = MaskingTerms("ward", FIVE, roster=public)
    play = Play(terms, make_uploads(FIVE), private)

    def restart(again: tuple[str, ...] = ()) -> None:
        server = play.server
        play.server = MaskedSum.from_bytes(server.to_bytes(), terms, (5, 4, 2), server.sums if with_sums else None)
        for name in () if with_sums else again:
            play.server.add(name, *play.masked[name])

    restart()
    for phase in (play.announce, play.share):
        phase()
        restart()
    survivors = play.upload(missing=FIVE[:1])
    restart()
    if not with_sums:
        with pytest.raises(InputError, match="upload of device-1, device-2, device-3, device-4 is missing"):
            play.server.total()
        for name in survivors:
            shares = play.server.shares_for(name)
            play.states[name], masked = play.maskers[name].mask(play.states[name], shares, *play.data[name])
            play.server.add(name, *masked)
    assert play.server.close_uploads() == survivors
    for name in survivors[:2]:
        play.states[name], signature = play.maskers[name].agree(play.states[name], survivors)
        play.server.add_agreement(name, signature)
    restart(again=survivors)
    signatures = play.agree()
    restart(again=survivors)
    assert play.server.agreed == survivors
    assert play.server.close_agreement() == signatures
    play.answer()
    restart()
    if not with_sums:
        for name in survivors:
            play.server.add(name, *play.masked[name])
    assert_sum_over(play, survivors)


def test_a_state_of_other_devices_or_shapes_is_refused() -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.announce()
    content = play.server.to_bytes()
    with pytest.raises(InputError, match="'device-2', 'device-3', 'device-4' are not in the federation"):
        MaskedSum.from_bytes(content, MaskingTerms("ward", FIVE[:2], roster=None), (5, 4, 2))
    with pytest.raises(InputError, match="sums: they must be uint64"):
        MaskedSum.from_bytes(content, TERMS, (5, 4, 1), play.server.sums)


# Anything at all

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=99),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(FIVE), inner, max_size=5)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(device=st.sampled_from(FIVE) | st.text(), message=ANYTHING)
def test_malformed_replies_raise_only_input_errors(device: str, message: Any) -> None:
    play = Play(TERMS, make_uploads(FIVE))
    play.run(until="share")
    for handler in (play.server.add_keys, play.server.add_shares, play.server.add_agreement, play.server.add_answer):
        with pytest.raises(InputError):
            handler(device, message)
    with pytest.raises(InputError):
        play.server.add(device, message, message)
