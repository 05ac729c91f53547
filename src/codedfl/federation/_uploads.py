"""What a device of a federation is to upload, and the key under which its vault keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from codedfl.federation._federation_config import FederationConfig
from codedfl.identity import identity
from codedfl.uploads import Terms, Upload


@dataclass(frozen=True)
class UploadTask:
    """What a device is to upload, as its federation prescribes.

    Args:
        upload: the upload of the scheme.
        terms: what everybody knows.
    """

    upload: Upload
    terms: Terms

    @classmethod
    def of(cls, config: FederationConfig) -> Self | None:
        """Return the task of a federation; None if its scheme needs no upload."""
        upload, terms = config.algorithm.upload, config.terms
        return cls(upload, terms) if upload is not None and upload.layout(terms) else None

    def key(self, prescription: str, noise_variance: float, label_noise_variance: float) -> str:
        """Return the fingerprint of an upload with this noise."""
        return identity((prescription, UploadKey.of(self), noise_variance, label_noise_variance))


@dataclass(frozen=True)
class UploadKey:
    """What the fingerprint of an upload is made of, besides its noise and the prescription.

    Vaults keep uploads under these fingerprints, and a device whose vault has none draws anew, which reveals more. So fields and
    the name under which the class enters a fingerprint stay as they are, for good.

    Args:
        kind: name of the upload.
        coded_samples: ``c``.
        rank: ``r``, of a sketch that devices make.
        sketch_rows: ``|S|`` at most, of such a sketch.
        clip_norm: the norm to which samples are clipped; None for no clipping.
        seed: public seed of a sketch's directions.
    """

    identity_name: ClassVar[str] = "codedfl.flower._uploads.UploadTask"

    kind: str
    coded_samples: int
    rank: int
    sketch_rows: int
    clip_norm: float | None
    seed: int

    @classmethod
    def of(cls, task: UploadTask) -> Self:
        """Return that of a task."""
        upload, terms = task.upload, task.terms
        rank, rows = upload.sketched(terms.dimension)
        return cls(upload.name, terms.coded_samples, rank, rows, terms.clip_norm, terms.public.seed)


def noiseless(config: FederationConfig) -> bool:
    """Return whether the scheme of a federation uploads without noise, unless a device decides otherwise."""
    upload = config.algorithm.upload
    return upload is not None and not upload.noise


def learnt_exactly(config: FederationConfig) -> str:
    """Return what the server learns exactly of every device, as no noise is possible; empty if there is no such thing."""
    upload = config.algorithm.upload
    return "" if upload is None or upload.can_have_noise else upload.message
