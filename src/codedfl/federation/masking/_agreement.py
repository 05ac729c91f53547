"""What survivors sign before any of them helps to remove masks, so that a server cannot tell them different things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.federation.masking._keys import context, is_signed, signature_of
from codedfl.federation.masking._participants import Participants, require_messages
from codedfl.federation.masking._terms import MaskingTerms


@dataclass(frozen=True)
class Agreement:
    """A statement about one upload: who takes part with which keys, whose shares were forwarded, and who survived.

    A device signs one such statement per upload, and helps to remove masks if ``terms.threshold`` devices signed the same.
    ``MaskingTerms`` explains what follows from that.

    Attributes:
        terms: What all parties agree on; without a roster, nothing is signed or verified.
        transcript: Digest of terms and announced keys.
        senders: Whose shares a device received, in the order of the names.
        survivors: Whose masked uploads make up the sum, in the order of the names.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, ACM CCS 2017, figure 4, round 3
        (ConsistencyCheck).
    """

    terms: MaskingTerms = field(repr=False)
    transcript: bytes
    senders: tuple[str, ...]
    survivors: tuple[str, ...]

    @classmethod
    def of(
        cls, terms: MaskingTerms, everybody: Participants, senders: Iterable[str], survivors: Iterable[str]
    ) -> Agreement:
        """Return the statement about an upload; the order of the names does not matter."""
        return cls(terms, everybody.transcript, tuple(sorted(senders)), tuple(sorted(survivors)))

    def sign(self, device: str, identity_key: bytes | None) -> bytes:
        """Return the signature of a device; nothing if there is no roster.

        Raises:
            InputError: If there is a roster and the identity key does not fit it.
        """
        return signature_of(self.terms, device, identity_key, self._message(device))

    def verify(self, device: str, signature: bytes) -> None:
        """Check the signature of one device; without a roster, check nothing.

        Raises:
            InputError: If the device is no survivor, or has not signed this statement.
        """
        if self.terms.roster is None:
            return
        if device not in self.survivors:
            raise InputError(
                f"signature of device {shown(device)}: it is none of the survivors {listing(self.survivors)}; leave it out."
            )
        if not is_signed(self.terms, device, signature, self._message(device)):
            raise InputError(
                f"signature of device {shown(device)}: it is not by its key in the roster for the senders and survivors of this "
                "upload; it is forged, or devices were told different ones."
            )

    def require_agreed(self, signatures: Mapping[str, bytes]) -> None:
        """Check that ``terms.threshold`` devices signed this statement; without a roster, check nothing.

        Raises:
            InputError: If there are fewer, or a signature is not over this statement.
        """
        messages = require_messages("signatures", signatures)
        if self.terms.roster is None:
            return
        for device, signature in messages.items():
            self.verify(device, signature)
        self.terms.require_enough("signatures", len(messages))

    def _message(self, device: str) -> bytes:
        return context(
            "agreement",
            self.terms.federation,
            device,
            self.transcript,
            context(*self.senders),
            context(*self.survivors),
        )
