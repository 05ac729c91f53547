"""The protocol as a device sees it, with an honest and with a dishonest server."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation.masking._device import Masker
from codedfl.federation.masking._ring import to_ring
from codedfl.federation.masking._state import DeviceState
from codedfl.federation.masking._terms import MaskingTerms
from tests.federation.masking.support import Play, identity_keys, make_uploads, names

FIVE = names(5)
OPEN_TERMS = MaskingTerms("ward", FIVE, roster=None)


def play(terms: MaskingTerms = OPEN_TERMS, seed: int = 0) -> Play:
    return Play(terms, make_uploads(terms.devices), seed=seed)


def exact_sums(arrays: list[Any]) -> list[Fraction]:
    return [
        sum(map(Fraction, entries), Fraction(0))
        for entries in zip(*(array.ravel().tolist() for array in arrays), strict=True)
    ]


@pytest.mark.parametrize("count", range(3, 9))
def test_the_sum_is_the_plain_sum_within_the_stated_bound(count: int) -> None:
    """Exactly: the bound and the sums are compared as fractions."""
    terms = MaskingTerms("ward", names(count), roster=None)
    everything = play(terms)
    everything.run()
    bound = Fraction(count, 2 ** (terms.fraction_bits + 1))
    assert Fraction(terms.error_bound(count)) == bound
    for part, total in enumerate(everything.server.total()):
        wanted = exact_sums([everything.data[name][part] for name in terms.devices])
        assert max(abs(Fraction(got) - want) for got, want in zip(total.ravel().tolist(), wanted, strict=True)) <= bound
        rounded = sum(to_ring("x", everything.data[name][part], terms).view(np.int64) for name in terms.devices)
        assert np.array_equal(total, rounded / 2.0**terms.fraction_bits)


def test_the_bound_is_reached() -> None:
    half = np.full((1, 1), 2.0**-25)
    everything = Play(OPEN_TERMS, dict.fromkeys(FIVE, (half, half)))
    everything.run()
    features, _ = everything.server.total()
    assert abs(features[0, 0] - 5 * 2.0**-25) == OPEN_TERMS.error_bound(5)


def test_devices_with_a_roster_sign_and_verify() -> None:
    private, public = identity_keys(FIVE)
    terms = MaskingTerms("ward", FIVE, roster=public)
    everything = Play(terms, make_uploads(FIVE), private)
    everything.run()
    features, _ = everything.server.total()
    wanted = np.sum([everything.data[name][0] for name in FIVE], axis=0)
    np.testing.assert_allclose(features, wanted, rtol=0, atol=terms.error_bound(5) + 1e-12)


def test_a_restart_between_any_two_phases_changes_no_reply() -> None:
    """A device that is restored before every request answers like one that is not, and repeats itself."""
    private, public = identity_keys(FIVE)
    everything = Play(MaskingTerms("ward", FIVE, roster=public), make_uploads(FIVE), private)
    name = FIVE[2]
    masker, data = everything.maskers[name], everything.data[name]

    def restored() -> DeviceState:
        state = everything.states[name]
        copy = DeviceState.from_bytes(state.to_bytes())
        assert copy == state
        assert copy.to_bytes() == state.to_bytes()
        return copy

    published = everything.announce()
    assert restored().published == published[name]
    everything.share()
    state, sealed = masker.share(restored(), published)
    assert state == everything.states[name]
    assert sealed == {peer: everything.server._shares[name][peer] for peer in FIVE}
    before = restored()
    everything.upload(missing=[FIVE[0]])
    shares = everything.server.shares_for(name)
    for start in (before, restored()):
        state, masked = masker.mask(start, shares, *data)
        assert state == everything.states[name]
        assert [part.tobytes() for part in masked] == [part.tobytes() for part in everything.masked[name]]
    signatures = everything.agree()
    survivors = list(everything.server.close_uploads())
    assert masker.agree(restored(), survivors) == (everything.states[name], signatures[name])
    before = restored()
    everything.answer()
    for start in (before, restored()):
        state, answer = masker.unmask(start, survivors, signatures)
        assert state == everything.states[name]
        assert answer == everything.server._answers[name]


def test_secrets_come_from_the_operating_system() -> None:
    """Two uploads of the same device have no secret in common."""
    first, second = (Masker(OPEN_TERMS, FIVE[0]).begin() for _ in range(2))
    for field in ("encryption_key", "mask_seed", "self_seed", "published"):
        assert getattr(first, field) != getattr(second, field)


def test_no_secret_is_shown() -> None:
    everything = play()
    everything.run(until="upload")
    state = everything.states[FIVE[0]]
    for secret in (state.encryption_key, state.mask_seed, state.self_seed, *state.received.values()):
        assert repr(secret)[2:-1] not in repr(state)
    assert "PRIVATE" not in repr(Masker(OPEN_TERMS, FIVE[0], b"PRIVATE"))


# Phase 2: keys


def test_forged_keys_are_refused() -> None:
    """A server that replaces the keys of a device by its own cannot sign them."""
    private, public = identity_keys(FIVE)
    terms = MaskingTerms("ward", FIVE, roster=public)
    everything = Play(terms, make_uploads(FIVE), private)
    published = everything.announce()
    own = Masker(MaskingTerms("ward", FIVE, roster=None), FIVE[1]).begin().published
    stolen = published[FIVE[2]]
    changed = bytearray(published[FIVE[1]])
    changed[70] ^= 1
    for forged in (own, own + published[FIVE[1]][96:], stolen, bytes(changed)):
        with pytest.raises(InputError, match=r"keys of device 'device-1': the signature is not by its key"):
            everything.maskers[FIVE[0]].share(everything.states[FIVE[0]], {**published, FIVE[1]: forged})


def test_keys_signed_for_another_federation_are_refused() -> None:
    private, public = identity_keys(FIVE)
    here, there = (
        Play(MaskingTerms(name, FIVE, roster=public), make_uploads(FIVE), private) for name in ("ward", "lab")
    )
    published = {**here.announce(), FIVE[1]: there.announce()[FIVE[1]]}
    with pytest.raises(InputError, match=r"'device-1': the signature .* federation 'ward'"):
        here.maskers[FIVE[0]].share(here.states[FIVE[0]], published)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({FIVE[1]: None, FIVE[2]: None}, "3 of 5 devices are too few, a sum-only upload needs 4"),
        ({FIVE[0]: None}, "keys of device 'device-0' are not those that it announced"),
        ({FIVE[0]: bytes(96)}, "keys of device 'device-0' are not those that it announced"),
        ({"mallory": b"\x09" * 96}, "keys of 'mallory': no such device"),
        ({FIVE[1]: b"short"}, "keys of device 'device-1': 5 bytes are not"),
        ({FIVE[1]: b"\x09" * 201}, "keys of device 'device-1': 201 bytes are not"),
        ({FIVE[1]: bytes(96)}, "keys of device 'device-1': the encryption key is weak"),
        ({FIVE[1]: b"\x09" * 32 + bytes(64)}, "keys of device 'device-1': the masking key is weak"),
        ({FIVE[1]: "text"}, "keys of device 'device-1': 'str' must be bytes"),
        ({3: b""}, "keys: the device name 3 must be a text"),
    ],
)
def test_malformed_keys_are_refused(change: dict[Any, Any], message: str) -> None:
    everything = play()
    published = {name: keys for name, keys in {**everything.announce(), **change}.items() if keys is not None}
    with pytest.raises(InputError, match=message):
        everything.maskers[FIVE[0]].share(everything.states[FIVE[0]], published)


def test_secrets_are_shared_with_one_set_of_participants_only() -> None:
    everything = play()
    published = everything.announce()
    state, _ = everything.maskers[FIVE[0]].share(everything.states[FIVE[0]], published)
    fewer = {name: published[name] for name in FIVE[:4]}
    with pytest.raises(InputError, match="keys: they are not those presented before"):
        everything.maskers[FIVE[0]].share(state, fewer)


# Phase 3: shares and masked upload


def shared_play() -> Play:
    everything = play()
    everything.run(until="share")
    return everything


@pytest.mark.parametrize("byte", [0, 11, 12, 30, 59])
def test_a_flipped_bit_of_a_share_is_refused(byte: int) -> None:
    everything = shared_play()
    shares = everything.server.shares_for(FIVE[0])
    changed = bytearray(shares[FIVE[3]])
    changed[byte] ^= 0x10
    with pytest.raises(InputError, match=r"shares of device 'device-3' for 'device-0' do not open"):
        everything.maskers[FIVE[0]].mask(
            everything.states[FIVE[0]], {**shares, FIVE[3]: bytes(changed)}, *everything.data[FIVE[0]]
        )


def test_shares_of_another_federation_are_refused() -> None:
    """The same secrets in a federation of another name: even then nothing can be replayed."""
    here, there = shared_play(), play(MaskingTerms("lab", FIVE, roster=None))
    there.run(until="share")
    for name in FIVE:
        assert here.states[name].encryption_key == there.states[name].encryption_key
    replayed = {**here.server.shares_for(FIVE[0]), FIVE[1]: there.server.shares_for(FIVE[0])[FIVE[1]]}
    with pytest.raises(InputError, match=r"shares of device 'device-1' .* do not open: .* another device, federation"):
        here.maskers[FIVE[0]].mask(here.states[FIVE[0]], replayed, *here.data[FIVE[0]])


def test_shares_on_another_route_are_refused() -> None:
    """Shares for another receiver, of another sender, and sent back to their sender."""
    everything = shared_play()
    shares = everything.server.shares_for(FIVE[0])
    for wrong in (
        everything.server.shares_for(FIVE[2])[FIVE[1]],
        shares[FIVE[2]],
        everything.server.shares_for(FIVE[1])[FIVE[0]],
    ):
        with pytest.raises(InputError, match=r"shares of device 'device-1' for 'device-0' do not open"):
            everything.maskers[FIVE[0]].mask(
                everything.states[FIVE[0]], {**shares, FIVE[1]: wrong}, *everything.data[FIVE[0]]
            )


def test_devices_that_were_shown_different_participants_do_not_open_shares() -> None:
    everything = play()
    published = everything.announce()
    first, second = FIVE[0], FIVE[1]
    fewer = {name: published[name] for name in FIVE[:4]}
    state, own = everything.maskers[first].share(everything.states[first], published)
    received = {first: own[first]}
    for name in FIVE[1:4]:
        _, sealed = everything.maskers[name].share(everything.states[name], fewer if name == second else published)
        received[name] = sealed[first]
    with pytest.raises(InputError, match=r"shares of device 'device-1' .* do not open: .* set of participants"):
        everything.maskers[first].mask(state, received, *everything.data[first])


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (FIVE[:3], "shares: 3 of 5 devices are too few, a sum-only upload needs 4"),
        (FIVE[1:], "shares: those of 'device-0' for itself are missing"),
    ],
)
def test_missing_shares_are_refused(kept: tuple[str, ...], message: str) -> None:
    everything = shared_play()
    shares = everything.server.shares_for(FIVE[0])
    with pytest.raises(InputError, match=message):
        everything.maskers[FIVE[0]].mask(
            everything.states[FIVE[0]], {name: shares[name] for name in kept}, *everything.data[FIVE[0]]
        )


def test_an_upload_is_masked_once() -> None:
    """The same masks over other data, or other masks over the same data, would give away the difference."""
    everything = shared_play()
    name, masker = FIVE[0], everything.maskers[FIVE[0]]
    everything.upload()
    shares = everything.server.shares_for(name)
    features, labels = everything.data[name]
    with pytest.raises(InputError, match="not those uploaded before"):
        masker.mask(everything.states[name], shares, features + 1, labels)
    with pytest.raises(InputError, match="not those uploaded before"):
        masker.mask(everything.states[name], shares, features, labels[:, :1])
    fewer = {sender: shares[sender] for sender in FIVE[:4]}
    with pytest.raises(InputError, match="shares: they are not those of the first request"):
        masker.mask(everything.states[name], fewer, features, labels)


def test_rows_of_features_and_labels_must_match() -> None:
    everything = shared_play()
    features, labels = everything.data[FIVE[0]]
    with pytest.raises(InputError, match="labels: 4 rows do not match the 5 rows of features"):
        everything.maskers[FIVE[0]].mask(
            everything.states[FIVE[0]], everything.server.shares_for(FIVE[0]), features, labels[:4]
        )


# Phases 4 and 5: agree and unmask


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        (FIVE[:3], "survivors: 3 of 5 devices are too few, a sum-only upload needs 4"),
        ((), "'device-0' answers only if it is one of them"),
        (FIVE[1:], "'device-0' answers only if it is one of them"),
        ((*FIVE[:4], "mallory"), "survivors: 'mallory' sent no shares to this device"),
        ((*FIVE[:3], FIVE[2]), "every name must be there once"),
        ("device-0", "must be a list of device names"),
        ([0, 1], "must be a list of device names"),
    ],
)
def test_bad_survivors_are_refused(survivors: Any, message: str) -> None:
    everything = shared_play()
    everything.upload()
    masker, state = everything.maskers[FIVE[0]], everything.states[FIVE[0]]
    with pytest.raises(InputError, match=message):
        masker.agree(state, survivors)
    with pytest.raises(InputError, match=message):
        masker.unmask(state, survivors, {})


def test_both_kinds_of_shares_are_never_given_for_one_device() -> None:
    """Whichever set is named first: afterwards the other share of any device stays with this device."""
    everything = shared_play()
    everything.upload()
    masker, state = everything.maskers[FIVE[0]], everything.states[FIVE[0]]
    for dropped in FIVE[1:]:
        survivors = tuple(name for name in FIVE if name != dropped)
        answered, answer = masker.unmask(state, survivors, {})
        for name, pair in state.received.items():
            assert answer[name] == (pair[:16] if name == dropped else pair[16:])
        assert masker.unmask(answered, survivors[::-1], {}) == (answered, answer)
        others = [tuple(name for name in FIVE if name != left_out) for left_out in FIVE if left_out != dropped]
        for other in (FIVE, *others):
            with pytest.raises(InputError, match="never answers for another set"):
                masker.unmask(answered, other, {})
            with pytest.raises(InputError, match="never answers for another set"):
                masker.agree(answered, other)


def test_phases_come_in_order() -> None:
    everything = play()
    everything.announce()
    masker, state = everything.maskers[FIVE[0]], everything.states[FIVE[0]]
    with pytest.raises(InputError, match="has not shared its own secrets yet"):
        masker.mask(state, {}, *everything.data[FIVE[0]])
    with pytest.raises(InputError, match="has not uploaded anything yet"):
        masker.agree(state, FIVE)
    with pytest.raises(InputError, match="has not uploaded anything yet"):
        masker.unmask(state, FIVE, {})


def test_the_state_of_another_device_or_federation_is_refused() -> None:
    state = Masker(OPEN_TERMS, FIVE[0]).begin()
    for masker in (Masker(OPEN_TERMS, FIVE[1]), Masker(MaskingTerms("lab", FIVE, roster=None), FIVE[0])):
        with pytest.raises(InputError, match="state: it belongs to device 'device-0' of federation 'ward'"):
            masker.share(state, {})


def test_a_stranger_is_no_device() -> None:
    with pytest.raises(InputError, match="device = 'mallory' is not one of device-0"):
        Masker(OPEN_TERMS, "mallory")


# Anything at all

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=210),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.sampled_from(FIVE), inner, max_size=5)
    ),
    max_leaves=10,
)
MESSAGES = ANYTHING | st.dictionaries(st.sampled_from(FIVE), st.binary(max_size=210), min_size=4)
STAGES: list[DeviceState] = []
SIGNED: list[DeviceState] = []
KEYS = identity_keys(FIVE)


def stages() -> list[DeviceState]:
    if not STAGES:
        everything = play()
        everything.announce()
        STAGES.append(everything.states[FIVE[0]])
        everything.share()
        STAGES.append(everything.states[FIVE[0]])
        everything.upload()
        STAGES.append(everything.states[FIVE[0]])
    return STAGES


@given(message=MESSAGES, array=ANYTHING, stage=st.integers(0, 2))
def test_malformed_requests_raise_only_input_errors(message: Any, array: Any, stage: int) -> None:
    masker, state = Masker(OPEN_TERMS, FIVE[0]), stages()[stage]
    with pytest.raises(InputError):
        masker.share(state, message)
    with pytest.raises(InputError):
        masker.mask(state, message, array, array)
    with pytest.raises(InputError):
        masker.agree(state, message)
    with pytest.raises(InputError):
        masker.unmask(state, message, {})


@pytest.mark.slow
@given(message=MESSAGES)
def test_malformed_signatures_raise_only_input_errors(message: Any) -> None:
    private, public = KEYS
    terms = MaskingTerms("ward", FIVE, roster=public)
    if not SIGNED:
        everything = Play(terms, make_uploads(FIVE), private)
        everything.run(until="agree")
        SIGNED.append(everything.states[FIVE[0]])
    with pytest.raises(InputError):
        Masker(terms, FIVE[0], private[FIVE[0]]).unmask(SIGNED[0], FIVE, message)
