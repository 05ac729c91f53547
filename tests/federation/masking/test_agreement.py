"""A server that tells devices different things, with devices that collude with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation.masking._device import Masker
from codedfl.federation.masking._keys import masking_key
from codedfl.federation.masking._participants import SEED_BYTES, Agreement, Participants
from codedfl.federation.masking._ring import RingArray, apply_masks, to_floats
from codedfl.federation.masking._server import MaskedSum
from codedfl.federation.masking._state import DeviceState
from codedfl.federation.masking._terms import MaskingTerms
from codedfl.typing import FloatArray
from tests.federation.masking.support import Play, identity_keys, make_uploads, names

FIVE, TEN = names(5), names(10)
PRIVATE, PUBLIC = identity_keys(TEN)
TERMS = MaskingTerms("ward", FIVE, roster=PUBLIC)
OPEN = MaskingTerms("ward", TEN, roster=None)
SIGNED = MaskingTerms("ward", TEN, roster=PUBLIC)


def agreed_play(terms: MaskingTerms = TERMS, missing: Collection[str] = ()) -> Play:
    play = Play(terms, make_uploads(terms.devices), PRIVATE)
    play.run(until="agree", missing={"upload": missing})
    return play


def unmask(play: Play, signatures: Mapping[str, bytes], device: str = FIVE[0]) -> dict[str, bytes]:
    _, answer = play.maskers[device].unmask(play.states[device], play.server.close_uploads(), signatures)
    return answer


# One device


def test_a_device_signs_once_and_repeats_its_signature() -> None:
    play = agreed_play()
    masker, state = play.maskers[FIVE[0]], play.states[FIVE[0]]
    signature = play.server.close_agreement()[FIVE[0]]
    assert masker.agree(state, FIVE[::-1]) == (state, signature)
    assert masker.agree(DeviceState.from_bytes(state.to_bytes()), FIVE) == (state, signature)
    fresh = state.model_copy(update={"survivors": (), "signature": b""})
    assert masker.agree(fresh, FIVE)[1] != signature, "signatures are random, so this one is remembered"
    with pytest.raises(InputError, match="never answers for another set"):
        masker.agree(state, FIVE[:4])


def test_the_threshold_of_signatures_is_enough_and_one_less_is_not() -> None:
    play = agreed_play()
    signatures = play.server.close_agreement()
    everybody = unmask(play, signatures)
    assert unmask(play, {name: signatures[name] for name in FIVE[:4]}) == everybody
    assert unmask(play, {name: signatures[name] for name in FIVE[1:4]}) == everybody, "its own it knows"
    for kept in (FIVE[:3], FIVE[1:3], ()):
        with pytest.raises(InputError, match=r"signatures: [13] of 5 devices are too few, a sum-only upload needs 4"):
            unmask(play, {name: signatures[name] for name in kept})


def test_a_device_that_missed_the_agreement_answers_for_what_others_signed() -> None:
    play = Play(TERMS, make_uploads(FIVE), PRIVATE)
    play.run(missing={"agree": FIVE[4:], "answer": FIVE[:1]})
    assert play.server.agreed == FIVE[:4]
    wanted = np.sum([play.data[name][0] for name in FIVE], axis=0)
    assert np.abs(play.server.total()[0] - wanted).max() <= TERMS.error_bound(5) + 1e-12
    with pytest.raises(InputError, match="never answers for another set"):
        play.maskers[FIVE[4]].agree(play.states[FIVE[4]], FIVE[1:])


def test_a_refused_answer_leaves_a_device_free_to_agree() -> None:
    """Otherwise anybody could keep a device out with one wrong request."""
    play = Play(TERMS, make_uploads(FIVE), PRIVATE)
    play.run(until="upload")
    masker, state = play.maskers[FIVE[0]], play.states[FIVE[0]]
    with pytest.raises(InputError, match="signatures: 1 of 5 devices are too few"):
        masker.unmask(state, FIVE[:4], {})
    assert state.survivors == ()
    masker.agree(state, FIVE)


def forgeries(play: Play) -> dict[str, bytes]:
    """Signatures of the second device that are not over what the first one was told."""
    name, own = FIVE[1], PRIVATE[FIVE[1]]
    everybody = Participants.verify(play.terms, play.server.close_keys())
    right = Agreement.of(play.terms, everybody, FIVE, FIVE)
    signature = play.server.close_agreement()[name]
    right.verify(name, signature)
    other_keys = Play(TERMS, make_uploads(FIVE), PRIVATE, seed=1)
    renamed = replace(TERMS, federation="lab")
    return {
        "empty": b"",
        "changed": signature[:-1] + bytes([signature[-1] ^ 1]),
        "of another device": play.server.close_agreement()[FIVE[2]],
        "by another key": Agreement.of(
            replace(TERMS, roster={**PUBLIC, name: PUBLIC[FIVE[2]]}), everybody, FIVE, FIVE
        ).sign(name, PRIVATE[FIVE[2]]),
        "other federation": replace(right, terms=renamed).sign(name, own),
        "other federation, whole": agreed_play(renamed).server.close_agreement()[name],
        "other participants": replace(
            right, transcript=Participants.verify(TERMS, other_keys.announce()).transcript
        ).sign(name, own),
        "other threshold": replace(
            right, transcript=Participants.verify(replace(TERMS, threshold=5), play.server.close_keys()).transcript
        ).sign(name, own),
        "other senders": replace(right, senders=FIVE[:4]).sign(name, own),
        "other survivors": replace(right, survivors=FIVE[:4]).sign(name, own),
        "senders and survivors exchanged": Agreement(TERMS, everybody.transcript, FIVE[:4], FIVE).sign(name, own),
        "keys": everybody.keys[name].signature,
    }


def test_forged_and_replayed_signatures_are_refused_by_device_and_server() -> None:
    play = agreed_play()
    signatures = play.server.close_agreement()
    waiting = MaskedSum.from_bytes(play.server.to_bytes(), TERMS, (5, 4, 2))
    waiting._signatures, waiting._agreed = {}, ()
    message = "signature of device 'device-1': it is not by its key in the roster for the senders and survivors"
    for kind, forged in forgeries(play).items():
        for accept in (
            lambda signature: unmask(play, {**signatures, FIVE[1]: signature}),
            lambda signature: waiting.add_agreement(FIVE[1], signature),
        ):
            with pytest.raises(InputError) as refusal:
                accept(forged)
            assert message in str(refusal.value), kind
    waiting.add_agreement(FIVE[1], signatures[FIVE[1]])


def test_a_signature_counts_for_one_name_even_if_two_have_the_same_key() -> None:
    terms = replace(TERMS, roster={**PUBLIC, FIVE[1]: PUBLIC[FIVE[2]]})
    agreement = Agreement(terms, bytes(32), FIVE, FIVE)
    signature = agreement.sign(FIVE[2], PRIVATE[FIVE[2]])
    agreement.verify(FIVE[2], signature)
    with pytest.raises(InputError, match="signature of device 'device-1': it is not by its key"):
        agreement.verify(FIVE[1], signature)


def test_signatures_of_devices_that_are_no_survivors_do_not_count() -> None:
    play = agreed_play(missing=FIVE[4:])
    survivors, signatures = play.server.close_uploads(), play.server.close_agreement()
    assert survivors == FIVE[:4]
    everybody = Participants.verify(TERMS, play.server.close_keys())
    outside = Agreement.of(TERMS, everybody, FIVE, survivors).sign(FIVE[4], PRIVATE[FIVE[4]])
    for stranger in (FIVE[4], "mallory"):
        with pytest.raises(InputError, match=f"signature of device '{stranger}': it is none of the survivors device-0"):
            unmask(play, {**signatures, stranger: outside})
        with pytest.raises(InputError, match=f"signature of device '{stranger}': it is late or takes no part"):
            play.server.add_agreement(stranger, outside)


def test_a_device_without_its_identity_key_cannot_sign() -> None:
    play = Play(TERMS, make_uploads(FIVE), PRIVATE)
    play.run(until="upload")
    with pytest.raises(InputError, match="identity_key of device 'device-0' is missing"):
        Masker(TERMS, FIVE[0]).agree(play.states[FIVE[0]], FIVE)


def test_without_a_roster_nothing_is_signed_or_verified() -> None:
    terms = replace(TERMS, roster=None)
    play = agreed_play(terms)
    assert play.server.close_agreement() == dict.fromkeys(FIVE, b"")
    assert unmask(play, {}) == unmask(play, {"mallory": b"anything"})


# The server lies


Told = tuple[frozenset[str], frozenset[str]]
"""Senders and survivors."""


def begun(terms: MaskingTerms) -> Play:
    play = Play(terms, make_uploads(terms.devices, rows=2), PRIVATE)
    play.run(until="share")
    return play


@dataclass
class LyingServer:
    """Tells every device something else; some devices collude with it: it has their keys and all that they received.

    Attributes:
        play: All devices, after they have shared their secrets.
        colluders: Those that collude.
        senders: Whose shares a device is forwarded; everybody's unless given.
        survivors: Whom an honest device hears to have survived.
        answers: What honest devices answered, by device.
        refusals: Why honest devices refused, by device.
    """

    play: Play
    colluders: tuple[str, ...]
    senders: Mapping[str, tuple[str, ...]]
    survivors: Mapping[str, tuple[str, ...]]
    answers: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.terms, self.states = self.play.terms, dict(self.play.states)
        self.everybody = Participants.verify(self.terms, self.play.server.close_keys())
        self.masked: dict[str, tuple[RingArray, RingArray]] = {}
        self.honest = tuple(name for name in self.terms.devices if name not in self.colluders)

    def run(self) -> None:
        """Ask everybody for a masked upload, a signature and shares; show each device every signature that there can be."""
        for name in self.terms.devices:
            forwarded = self.play.server.shares_for(name)
            shares = {sender: forwarded[sender] for sender in self._peers(name)}
            self.states[name], self.masked[name] = self.play.maskers[name].mask(
                self.states[name], shares, *self.play.data[name]
            )
        signed: dict[Told, dict[str, bytes]] = {}
        for name in self.honest:
            self.states[name], signature = self.play.maskers[name].agree(self.states[name], self.survivors[name])
            signed.setdefault(self._told(name), {})[name] = signature
        for (senders, survivors), signatures in signed.items():
            agreement = Agreement.of(self.terms, self.everybody, senders, survivors)
            signatures |= {name: agreement.sign(name, PRIVATE[name]) for name in self.colluders if name in survivors}
        for name in self.honest:
            try:
                self.states[name], self.answers[name] = self.play.maskers[name].unmask(
                    self.states[name], self.survivors[name], signed[self._told(name)]
                )
            except InputError as refusal:
                self.refusals[name] = str(refusal)

    def _peers(self, name: str) -> tuple[str, ...]:
        return self.senders.get(name, self.terms.devices)

    def _told(self, name: str) -> Told:
        return frozenset(self._peers(name)), frozenset(self.survivors[name])

    def seed(self, owner: str, kind: str) -> bytes:
        """Return a secret of a device, from all shares that there are.

        Raises:
            InputError: If they are too few.
        """
        parts = {"mask": slice(None, SEED_BYTES), "self": slice(SEED_BYTES, None)}
        points = []
        for name in self.terms.devices:
            if name in self.colluders:
                points.append((self.everybody.point(name), self.states[name].received[owner][parts[kind]]))
            elif owner in self.answers.get(name, {}) and (owner in self.survivors[name]) == (kind == "self"):
                points.append((self.everybody.point(name), self.answers[name][owner]))
        self.terms.require_enough("shares", len(points))
        return bytes(Shamir.combine(points[: self.terms.threshold], ssss=False))

    def read(self, victim: str) -> FloatArray:
        """Return the features of one device, without its self mask and without those with all its peers.

        Raises:
            InputError: If shares for one of them are too few.
        """
        masks = [self.everybody.self_mask(self.seed(victim, "self"), victim, -1)]
        for peer in self._peers(victim):
            if peer != victim:
                seed = self.states[peer].mask_seed if peer in self.colluders else self.seed(peer, "mask")
                private = masking_key(seed, self.terms.federation, peer)
                masks.append(self.everybody.pairwise_mask(private, peer, victim, of=victim, sign=-1))
        arrays = [part.copy() for part in self.masked[victim]]
        apply_masks(arrays, masks)
        return to_floats(arrays[0], self.terms)

    def assert_reads(self, victim: str) -> None:
        error = np.abs(self.read(victim) - self.play.data[victim][0]).max()
        assert error <= self.terms.error_bound(1)


VICTIM = TEN[0]


def singling_out(terms: MaskingTerms) -> LyingServer:
    """Two of ten collude. The victim has no masks but with six peers, and everybody hears that other peers dropped out."""
    colluders, peers, others = TEN[1:3], TEN[3:7], TEN[7:]
    survivors = {VICTIM: (VICTIM, *colluders, *peers)}
    survivors |= {name: (name, VICTIM, *colluders, *others) for name in peers}
    survivors |= {name: (VICTIM, *colluders, *others, peers[i]) for i, name in enumerate(others)}
    return LyingServer(begun(terms), colluders, {VICTIM: survivors[VICTIM]}, survivors)


def test_without_signatures_two_of_ten_and_the_server_read_an_upload() -> None:
    server = singling_out(OPEN)
    server.run()
    assert server.refusals == {}
    server.assert_reads(VICTIM)


@pytest.mark.slow
def test_with_signatures_nobody_answers_a_server_that_tells_everybody_something_else() -> None:
    server = singling_out(SIGNED)
    server.run()
    assert server.answers == {}
    assert set(server.refusals) == set(server.honest)
    for refusal in server.refusals.values():
        assert re.match("signatures: [34] of 10 devices are too few, a sum-only upload needs 7", refusal)
    with pytest.raises(InputError, match="shares: 2 of 10 devices are too few"):
        server.read(VICTIM)


@pytest.mark.slow
def test_the_stated_number_of_colluders_is_the_largest() -> None:
    """With a threshold of 7 of 10, ``2 t > n + m`` holds for 3 and not for 4.

    The others are told in two groups that the other group dropped out. With 4 that collude, both groups of 3 have seven
    signatures, and every upload is read. With 3 that collude, one group of the other 7 has too few, whatever it is told.
    """
    play, colluders = begun(SIGNED), TEN[:4]
    groups = TEN[4:7], TEN[7:]
    survivors = {name: (*colluders, *group) for group in groups for name in group}
    server = LyingServer(play, colluders, {}, survivors)
    server.run()
    assert server.refusals == {}
    for victim in server.honest:
        server.assert_reads(victim)

    colluders, groups = TEN[:3], (TEN[3:6], TEN[6:])
    survivors = {**dict.fromkeys(groups[0], TEN[:7]), **dict.fromkeys(groups[1], (*colluders, *groups[1]))}
    server = LyingServer(play, colluders, {}, survivors)
    server.run()
    assert set(server.refusals) == set(groups[0])
    for victim in server.honest:
        with pytest.raises(InputError, match=r"shares: \d of 10 devices are too few"):
            server.read(victim)


@pytest.mark.slow
def test_a_victim_with_peers_of_its_own_is_not_singled_out_by_three_of_ten() -> None:
    """Its six peers are three that collude and three of which everybody else hears that they dropped out.

    For the others to answer, seven must sign the same. The three that are left and the three that collude are too few, so
    one of the peers has to survive.
    """
    colluders, peers, others = TEN[1:4], TEN[4:7], TEN[7:]
    play, of_victim = begun(SIGNED), (VICTIM, *colluders, *peers)
    for kept in ((), peers[:1]):
        told = (VICTIM, *colluders, *others, *kept)
        survivors = {name: told if name in told else TEN for name in TEN[4:]} | {VICTIM: of_victim}
        server = LyingServer(play, colluders, {VICTIM: of_victim}, survivors)
        server.run()
        assert set(server.answers) == ({*others, *kept} if kept else set())
        with pytest.raises(InputError, match=r"shares: \d of 10 devices are too few"):
            server.read(VICTIM)
    # Not for want of trying: the mask with the one peer that had to survive is all that is left.
    assert server.seed(VICTIM, "self") == server.states[VICTIM].self_seed
    for peer in peers[1:]:
        assert server.seed(peer, "mask") == server.states[peer].mask_seed
    with pytest.raises(InputError, match="shares: 3 of 10 devices are too few"):
        server.seed(peers[0], "mask")


@st.composite
def lies(draw: st.DrawFn) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Senders and survivors for each of three honest devices of five."""
    senders, survivors = {}, {}
    for name in FIVE[2:]:
        left_out = draw(st.none() | st.sampled_from([other for other in FIVE if other != name]))
        senders[name] = tuple(other for other in FIVE if other != left_out)
        dropped = left_out or draw(st.none() | st.sampled_from([other for other in FIVE if other != name]))
        survivors[name] = tuple(other for other in FIVE if other != dropped)
    return senders, survivors


BEGUN = begun(TERMS)


@pytest.mark.slow
@settings(max_examples=12)
@given(lies())
def test_whoever_answers_was_told_the_same(
    told: tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]],
) -> None:
    """Two of five collude, the most for a threshold of four: nobody's upload can be read, whatever the server says."""
    senders, survivors = told
    server = LyingServer(BEGUN, FIVE[:2], senders, survivors)
    server.run()
    assert len({(senders[name], survivors[name]) for name in server.answers}) <= 1
    for victim in server.honest:
        with pytest.raises(InputError, match=r"shares: \d of 5 devices are too few"):
            server.read(victim)
