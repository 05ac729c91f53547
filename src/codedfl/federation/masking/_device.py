"""A device's part in an upload of which the server learns only the sum over devices."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, commitment, masking_key, signed_keys
from codedfl.federation.masking._participants import SEED_BYTES, Agreement, Participants, SharePair, require_messages
from codedfl.federation.masking._ring import RingArray, apply_masks, to_ring, upload_digest
from codedfl.federation.masking._state import DeviceState
from codedfl.federation.masking._terms import MaskingTerms
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class Masker:
    """A device's part in the double-masking protocol: five phases, each one request of the server and one reply.

    1. ``begin`` makes keys and secrets; the reply is ``state.published``.
    2. ``share`` splits the device's secrets among all participants.
    3. ``mask`` returns the upload plus a self mask plus one mask per peer, which cancel in the sum.
    4. ``agree`` signs whose shares the device received and who survived.
    5. ``unmask`` returns shares that remove the self masks of survivors and the pairwise masks of those that dropped out.

    Every method returns a state. Store it before the reply leaves the device: a repeated request then gets the same reply,
    byte for byte, even after a restart. A different request in the same phase is refused, because two different replies could
    together give away what each one hides. A refused request changes nothing.

    Attributes:
        terms: What all parties agree on; ``MaskingTerms`` explains which lies of a server are harmless and why.
        device: Name of this device.
        identity_key: Its private key (P-384, PEM), which signs its announced keys and the survivors; not needed without a roster.
        random_bytes: Source of secrets, replaced by tests only. The polynomials that split them always come from the operating
            system's generator.

    Raises:
        InputError: If the device is not in the federation.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, ACM CCS 2017.
    """

    terms: MaskingTerms
    device: str
    identity_key: bytes | None = field(default=None, repr=False)
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def __post_init__(self) -> None:
        if self.device not in self.terms.devices:
            raise InputError(f"device = {shown(self.device)} is not one of {listing(self.terms.devices)}.")

    def begin(self) -> DeviceState:
        """Return the state of a new upload; ``state.published`` are the keys to announce.

        Raises:
            InputError: If there is a roster and the identity key does not fit it.
        """
        federation, device = self.terms.federation, self.device
        encryption_key, mask_seed, self_seed = (self.random_bytes(size) for size in (32, SEED_BYTES, SEED_BYTES))
        keys = PublicKeys(
            X25519PrivateKey.from_private_bytes(encryption_key).public_key().public_bytes_raw(),
            masking_key(mask_seed, federation, device).public_key().public_bytes_raw(),
            commitment(self_seed, federation, device),
        )
        return DeviceState(
            federation=federation,
            device=device,
            encryption_key=encryption_key,
            mask_seed=mask_seed,
            self_seed=self_seed,
            published=signed_keys(self.terms, device, keys, self.identity_key).to_bytes(),
        )

    def share(self, state: DeviceState, published: Mapping[str, bytes]) -> tuple[DeviceState, dict[str, bytes]]:
        """Split both secrets among all participants.

        Args:
            state: State after the first phase.
            published: Announced keys of all participants.

        Returns:
            The next state, and by receiver the encrypted shares.

        Raises:
            InputError: If keys are forged or malformed, there are too few, the device's own are not among them, or other keys
                were presented before.
        """
        self._require_own(state)
        messages = require_messages("keys", published)
        if state.participants:
            if messages != state.participants:
                raise InputError(
                    "keys: they are not those presented before, and a device shares its secrets once; present the same again."
                )
            return state, dict(state.sealed)
        if messages.get(self.device) != state.published:
            raise InputError(
                f"keys of device {shown(self.device)} are not those that it announced; present them unchanged."
            )
        everybody = Participants.verify(self.terms, messages)
        split = [
            Shamir.split(self.terms.threshold, len(everybody.keys), seed, ssss=False)
            for seed in (state.mask_seed, state.self_seed)
        ]
        private = X25519PrivateKey.from_private_bytes(state.encryption_key)
        sealed = {
            receiver: everybody.seal(
                private, self.device, receiver, SharePair(mask_share, self_share), self.random_bytes
            )
            for receiver, (_, mask_share), (_, self_share) in zip(everybody.keys, *split, strict=True)
        }
        return state.model_copy(update={"participants": messages, "sealed": sealed}), dict(sealed)

    def mask(
        self, state: DeviceState, shares: Mapping[str, bytes], features: FloatArray, labels: FloatArray
    ) -> tuple[DeviceState, tuple[RingArray, RingArray]]:
        """Return the upload in fixed point, masked.

        The sum over ``n`` devices is off by at most ``n * 2^-(fraction_bits + 1)`` per entry.

        Args:
            state: State after the second phase.
            shares: Encrypted shares for this device by sender, its own included.
            features: Coded features, of shape (c, d).
            labels: Coded labels, of shape (c, o).

        Returns:
            The next state, and the masked features and labels.

        Raises:
            InputError: If shares do not open, senders are too few, values do not fit, or shares or data are not those of before.
        """
        self._require_own(state)
        if not state.participants:
            raise InputError(
                "shares: this device has not shared its own secrets yet; present the keys of all participants first."
            )
        everybody = Participants.verify(self.terms, state.participants)
        received = self._unseal_all(state, everybody, require_messages("shares", shares))
        if state.received and received != state.received:
            raise InputError(
                "shares: they are not those of the first request, and a device masks its upload once; forward the same again."
            )
        upload = to_ring("features", features, self.terms), to_ring("labels", labels, self.terms)
        if len(upload[0]) != len(upload[1]):
            raise InputError(f"labels: {len(upload[1])} rows do not match the {len(upload[0])} rows of features.")
        digest = upload_digest(upload)
        if state.digest and digest != state.digest:
            raise InputError(
                "features, labels: they are not those uploaded before, and the same masks must not hide other data."
            )
        private = masking_key(state.mask_seed, self.terms.federation, self.device)
        masks = [everybody.self_mask(state.self_seed, self.device, 1)]
        masks += [
            everybody.pairwise_mask(private, self.device, peer, of=self.device, sign=1)
            for peer in received
            if peer != self.device
        ]
        apply_masks(upload, masks)
        return state.model_copy(update={"received": received, "digest": digest}), upload

    def agree(self, state: DeviceState, survivors: Sequence[str]) -> tuple[DeviceState, bytes]:
        """Sign once whose shares this device received and who survived.

        Args:
            state: State after the third phase.
            survivors: Devices whose masked upload the server has.

        Returns:
            The next state, and the signature; it is empty without a roster.

        Raises:
            InputError: If the device is not among the survivors, they are too few, one sent no shares, or others were
                named before.
        """
        self._require_own(state)
        names = _require_names(survivors)
        if not state.received:
            raise InputError("survivors: this device has not uploaded anything yet; ask for its masked upload first.")
        if state.survivors:
            if names != state.survivors:
                raise InputError(
                    f"survivors = {listing(names)}: this device has answered for {listing(state.survivors)} "
                    "and never answers for another set."
                )
            return state, state.signature
        if strangers := [name for name in names if name not in state.received]:
            raise InputError(
                f"survivors: {listing(map(shown, strangers))} sent no shares to this device; leave them out."
            )
        if self.device not in names:
            raise InputError(f"survivors = {listing(names)}: {shown(self.device)} answers only if it is one of them.")
        self.terms.require_enough("survivors", len(names))
        signature = self._agreement(state, names).sign(self.device, self.identity_key)
        return state.model_copy(update={"survivors": names, "signature": signature}), signature

    def unmask(
        self, state: DeviceState, survivors: Sequence[str], signatures: Mapping[str, bytes]
    ) -> tuple[DeviceState, dict[str, bytes]]:
        """Return one share for every sender: of the self-mask seed of a survivor, of the mask seed of one that dropped out.

        A device that missed the fourth phase agrees now. Without a roster, signatures are not looked at.

        Args:
            state: State after the third or the fourth phase.
            survivors: As in the fourth phase.
            signatures: By survivor, what ``agree`` returned there; the device counts as one that signed in any case.

        Returns:
            The next state, and the shares by the device whose secret they belong to.

        Raises:
            InputError: If ``agree`` refuses the survivors, a signature is not over the senders and survivors of this device, or
                they are too few.
        """
        state, signature = self.agree(state, survivors)
        messages = require_messages("signatures", signatures)
        self._agreement(state, state.survivors).require_agreed({**messages, self.device: signature})
        answer = {
            name: pair[SEED_BYTES:] if name in state.survivors else pair[:SEED_BYTES]
            for name, pair in state.received.items()
        }
        return state, answer

    def _agreement(self, state: DeviceState, survivors: Sequence[str]) -> Agreement:
        everybody = Participants.verify(self.terms, state.participants)
        return Agreement.of(self.terms, everybody, state.received, survivors)

    def _unseal_all(self, state: DeviceState, everybody: Participants, sealed: Mapping[str, bytes]) -> dict[str, bytes]:
        if strangers := [name for name in sealed if name not in everybody.keys]:
            raise InputError(
                f"shares of {listing(map(shown, strangers))}: the keys of this device were not presented before; leave it out."
            )
        if self.device not in sealed:
            raise InputError(f"shares: those of {shown(self.device)} for itself are missing; forward them as well.")
        self.terms.require_enough("shares", len(sealed))
        private = X25519PrivateKey.from_private_bytes(state.encryption_key)
        pairs = {name: everybody.unseal(private, name, self.device, sealed[name]) for name in sorted(sealed)}
        return {name: pair.mask_seed + pair.self_seed for name, pair in pairs.items()}

    def _require_own(self, state: DeviceState) -> None:
        if (state.federation, state.device) != (self.terms.federation, self.device):
            raise InputError(
                f"state: it belongs to device {shown(state.device)} of federation {shown(state.federation)}, "
                f"not to {shown(self.device)} of {shown(self.terms.federation)}; use the folder of this device."
            )


def _require_names(names: object) -> tuple[str, ...]:
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise InputError(f"survivors = {shown(names)} must be a list of device names.")
    if len(set(names)) < len(names):
        raise InputError(f"survivors = {listing(names)}: every name must be there once.")
    return tuple(sorted(names))
