"""The server of a masked sum: it learns the sum, and recovers what is left of masks from the shares of survivors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir

from codedfl._messages import listing, shown
from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, commitment, masking_key, verify_keys
from codedfl.federation.masking._participants import SEALED_BYTES, SEED_BYTES, Agreement, Participants, require_messages
from codedfl.federation.masking._ring import Mask, RingArray, apply_masks, to_floats
from codedfl.federation.masking._state import SumRecord
from codedfl.federation.masking._terms import MaskingTerms

Answers = Mapping[str, Mapping[str, bytes]]
"""Shares by the device that answered and by the device whose secret they belong to."""


def remaining_masks(
    everybody: Participants, senders: Sequence[str], survivors: Sequence[str], answers: Answers, threshold: int
) -> list[Mask]:
    """Return the masks that turn the sum of masked uploads into the sum of uploads.

    They remove the self mask of every survivor, and the pairwise masks between survivors and those that dropped out after
    they had sent shares. Those between two survivors cancel by themselves.

    Raises:
        InputError: If the answers do not recover the secret of some device.
    """
    masks = []
    for name in survivors:
        seed = _recover(name, everybody, answers, threshold, partial(_is_self_seed, everybody.federation, name))
        masks.append(everybody.self_mask(seed, name, sign=-1))
    for name in sorted(set(senders) - set(survivors)):
        seed = _recover(name, everybody, answers, threshold, partial(_is_mask_seed, everybody.federation, name))
        private = masking_key(seed, everybody.federation, name)
        masks += [everybody.pairwise_mask(private, name, peer, of=peer, sign=-1) for peer in survivors]
    return masks


def _is_self_seed(federation: str, device: str, keys: PublicKeys, seed: bytes) -> bool:
    return commitment(seed, federation, device) == keys.commitment


def _is_mask_seed(federation: str, device: str, keys: PublicKeys, seed: bytes) -> bool:
    return masking_key(seed, federation, device).public_key().public_bytes_raw() == keys.masking


def _recover(
    owner: str,
    everybody: Participants,
    answers: Answers,
    threshold: int,
    is_right: Callable[[PublicKeys, bytes], bool],
) -> bytes:
    points = [(everybody.point(name), answers[name][owner]) for name in sorted(answers)]
    # Windows of answers, around the end: one wrong answer is outside some window if there is one to spare.
    for start in range(len(points)):
        seed = Shamir.combine((points[start:] + points[:start])[:threshold], ssss=False)
        if is_right(everybody.keys[owner], seed):
            return seed
    raise InputError(
        f"answers: the shares do not recover the secret of device {shown(owner)}, so an answer or the device's own sharing "
        "is wrong; wait for more answers or start again without the device."
    )


_Message = TypeVar("_Message")


class MaskedSum:
    """Collects the replies of devices, phase by phase, and recovers the sum of their uploads.

    Replies are added one by one as they arrive, and a phase is closed once; what arrives later is refused. Closing needs
    ``terms.threshold`` devices, and closing again returns the same. One upload is in memory at a time, beside the sums.

    Store ``to_bytes()`` before telling devices what ``close_...`` returned, because they answer only one version of each
    request. The ``sums`` can be stored with it, in the same file; without them, devices are asked again for the same uploads.

    Args:
        terms: What all parties agree on. With a roster, the server refuses forged keys and signatures before devices have to.
        rows: Coded rows, c.
        columns: Columns of the features, d.
        outputs: Columns of the labels, o.
    """

    def __init__(self, terms: MaskingTerms, rows: int, columns: int, outputs: int) -> None:
        for name, size in (("rows", rows), ("columns", columns), ("outputs", outputs)):
            require_at_least(name, size, 1)
        self.terms = terms
        self.sums: tuple[RingArray, RingArray] = (
            np.zeros((rows, columns), np.uint64),
            np.zeros((rows, outputs), np.uint64),
        )
        self._keys: dict[str, bytes] = {}
        self._participants: tuple[str, ...] = ()
        self._shares: dict[str, dict[str, bytes]] = {}
        self._senders: tuple[str, ...] = ()
        self._folded: tuple[str, ...] = ()
        self._survivors: tuple[str, ...] = ()
        self._signatures: dict[str, bytes] = {}
        self._agreed: tuple[str, ...] = ()
        self._agreement: Agreement | None = None
        self._answers: dict[str, dict[str, bytes]] = {}
        self._total: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None

    @property
    def participants(self) -> tuple[str, ...]:
        """Whose keys are presented to the devices; nobody until the phase is closed."""
        return self._participants

    @property
    def senders(self) -> tuple[str, ...]:
        """Whose shares are forwarded; nobody until the phase is closed."""
        return self._senders

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose masked uploads make up the sum; nobody until the phase is closed."""
        return self._survivors

    @property
    def agreed(self) -> tuple[str, ...]:
        """Whose signatures are presented to the survivors; nobody until the phase is closed."""
        return self._agreed

    def add_keys(self, device: str, published: bytes) -> None:
        """Take the announced keys of a device.

        Raises:
            InputError: If the device is unknown or late, or its keys are malformed, forged, or other than before.
        """
        self._require_expected("keys", device, self._participants or self.terms.devices)
        verify_keys(
            self.terms, device, PublicKeys.from_bytes(device, require_messages("keys", {device: published})[device])
        )
        _remember("keys", self._keys, device, published)

    def close_keys(self) -> dict[str, bytes]:
        """Return the keys to present to all participants.

        Raises:
            InputError: If there are too few.
        """
        self.terms.require_enough("keys", len(self._keys))
        self._participants = self._participants or tuple(sorted(self._keys))
        return {name: self._keys[name] for name in self._participants}

    def add_shares(self, device: str, sealed: Mapping[str, bytes]) -> None:
        """Take the encrypted shares that a device made for all participants.

        Raises:
            InputError: If the device takes no part or is late, or its shares are malformed or other than before.
        """
        self._require_expected("shares", device, self._senders or self._participants)
        messages = require_messages("shares", sealed)
        if set(messages) != set(self._participants) or any(
            len(content) != SEALED_BYTES for content in messages.values()
        ):
            raise InputError(
                f"shares of device {shown(device)} must be {SEALED_BYTES} bytes for each of {listing(self._participants)}; "
                "ask it again."
            )
        _remember("shares", self._shares, device, messages)

    def close_shares(self) -> tuple[str, ...]:
        """Return the devices to ask for their masked upload, each with what ``shares_for`` returns.

        Raises:
            InputError: If there are too few.
        """
        self.terms.require_enough("shares", len(self._shares))
        self._senders = self._senders or tuple(sorted(self._shares))
        return self._senders

    def shares_for(self, device: str) -> dict[str, bytes]:
        """Return the encrypted shares to forward to a device, by sender.

        Raises:
            InputError: If the phase of shares is not closed, or the device sent none.
        """
        self._require_expected("shares", device, self._senders)
        return {sender: self._shares[sender][device] for sender in self._senders}

    def add(self, device: str, features: RingArray, labels: RingArray) -> None:
        """Fold the masked upload of a device into the sums.

        Raises:
            InputError: If the device sent no shares, is late or was added before, or the arrays have a wrong shape or type.
        """
        self._require_expected("upload", device, self._survivors or self._senders)
        if device in self._folded:
            raise InputError(f"upload of device {shown(device)} is in the sum already; add every device once.")
        for name, array, total in (("features", features, self.sums[0]), ("labels", labels, self.sums[1])):
            if not (isinstance(array, np.ndarray) and array.dtype == np.uint64 and array.shape == total.shape):
                what = (
                    f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                )
                raise InputError(f"{name} of device {shown(device)}: {what} must be uint64 of shape {total.shape}.")
        for array, total in zip((features, labels), self.sums, strict=True):
            np.add(total, array, out=total)
        self._folded = tuple(sorted((*self._folded, device)))

    def close_uploads(self) -> tuple[str, ...]:
        """Return the survivors, to name to every one of them.

        Raises:
            InputError: If there are too few.
        """
        if not self._survivors:
            self.terms.require_enough("masked uploads", len(self._folded))
            self._survivors = self._folded
        return self._survivors

    def add_agreement(self, device: str, signature: bytes) -> None:
        """Take the signature of a survivor over senders and survivors.

        Raises:
            InputError: If the device is no survivor or is late, or its signature is forged or other than before.
        """
        self._require_expected("signature", device, self._agreed or self._survivors)
        message = require_messages("signature", {device: signature})[device]
        if self._agreement is None:
            everybody = Participants.verify(self.terms, self.close_keys())
            self._agreement = Agreement.of(self.terms, everybody, self._senders, self._survivors)
        self._agreement.verify(device, message)
        _remember("signature", self._signatures, device, message)

    def close_agreement(self) -> dict[str, bytes]:
        """Return the signatures to present to every survivor, also to those that sent none.

        Raises:
            InputError: If there are too few.
        """
        self.terms.require_enough("signatures", len(self._signatures))
        self._agreed = self._agreed or tuple(sorted(self._signatures))
        return {name: self._signatures[name] for name in self._agreed}

    def add_answer(self, device: str, shares: Mapping[str, bytes]) -> None:
        """Take the shares with which a survivor helps to remove masks.

        Raises:
            InputError: If the device is no survivor or signatures are not presented yet, or its answer is malformed or other
                than before.
        """
        self._require_expected("answer", device, self._survivors if self._agreed else ())
        messages = require_messages("answer", shares)
        if set(messages) != set(self._senders) or any(len(content) != SEED_BYTES for content in messages.values()):
            raise InputError(
                f"answer of device {shown(device)} must be {SEED_BYTES} bytes for each of {listing(self._senders)}; ask it again."
            )
        _remember("answer", self._answers, device, messages)

    def total(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the sum of features and of labels over the survivors, in the memory of ``sums``.

        An entry is off by at most ``terms.error_bound(len(survivors))``, and by at most one part in ``2^53`` more if it has
        more than 53 significant bits. A wrong answer is noticed, and does no harm if there is an answer to spare.

        Raises:
            InputError: If survivors are not named, an upload of theirs is missing, or answers are too few or wrong.
        """
        if self._total is None:
            if not self._survivors:
                raise InputError(
                    f"masked uploads: {len(self._folded)} arrived and the phase is open; close it once there are "
                    f"{self.terms.threshold} or more."
                )
            if missing := sorted(set(self._survivors) - set(self._folded)):
                raise InputError(
                    f"upload of {listing(missing)} is missing, although named a survivor; ask for it again."
                )
            self.terms.require_enough("answers", len(self._answers))
            everybody = Participants.verify(self.terms, self.close_keys())
            masks = remaining_masks(everybody, self._senders, self._survivors, self._answers, self.terms.threshold)
            apply_masks(self.sums, masks)
            self._total = to_floats(self.sums[0], self.terms), to_floats(self.sums[1], self.terms)
        return self._total

    def to_bytes(self) -> bytes:
        """Return everything but the sums."""
        return SumRecord(
            keys=self._keys,
            participants=self._participants,
            shares=self._shares,
            senders=self._senders,
            folded=self._folded,
            survivors=self._survivors,
            signatures=self._signatures,
            agreed=self._agreed,
            answers=self._answers,
        ).to_bytes()

    @classmethod
    def from_bytes(
        cls, content: bytes, terms: MaskingTerms, shape: tuple[int, int, int], sums: Sequence[RingArray] | None = None
    ) -> MaskedSum:
        """Continue after a restart.

        Args:
            content: What ``to_bytes`` returned.
            terms: As before.
            shape: Rows, columns and outputs, as before.
            sums: The sums at the time of ``to_bytes``; None to collect the uploads again.

        Raises:
            InputError: If the content is damaged or the sums have another shape.
        """
        record = SumRecord.from_bytes(content)
        if strangers := sorted(set(record.keys) - set(terms.devices)):
            raise InputError(
                f"state of the sum-only upload: {listing(map(shown, strangers))} are not in the federation; restore the file."
            )
        self = cls(terms, *shape)
        self._keys, self._participants = record.keys, record.participants
        self._shares, self._senders = record.shares, record.senders
        self._survivors, self._answers = record.survivors, record.answers
        self._signatures, self._agreed = record.signatures, record.agreed
        if sums is not None:
            if [(array.shape, array.dtype) for array in sums] != [(array.shape, array.dtype) for array in self.sums]:
                raise InputError(
                    f"sums: they must be uint64 of the shapes {self.sums[0].shape} and {self.sums[1].shape}."
                )
            self.sums = sums[0].copy(), sums[1].copy()
            self._folded = record.folded
        return self

    def _require_expected(self, what: str, device: object, expected: Sequence[str]) -> None:
        if device not in expected:
            whom = listing(expected) if expected else "nobody yet"
            raise InputError(
                f"{what} of device {shown(device)}: it is late or takes no part, this phase expects {whom}."
            )


def _remember(what: str, messages: dict[str, _Message], device: str, message: _Message) -> None:
    if messages.setdefault(device, message) != message:
        raise InputError(
            f"{what} of device {shown(device)}: this is not what it sent before; a device must repeat its reply."
        )
