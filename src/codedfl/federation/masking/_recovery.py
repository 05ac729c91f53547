"""The masks that remain in a sum of masked uploads, recovered from shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from Crypto.Protocol.SecretSharing import Shamir

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, commitment, masking_key
from codedfl.federation.masking._participants import Participants
from codedfl.federation.masking._ring import Mask

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
