"""The coded upload before training, as a setting prescribes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from codedfl._validation import require_at_least, require_positive
from codedfl.coding import EncoderName
from codedfl.errors import InputError
from codedfl.streams import Streams
from codedfl.typing import BoolArray, FloatArray


@dataclass(frozen=True)
class Code:
    """The coded upload before training.

    Args:
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2`` of each device, (N,).
        label_noise_variance: variance of noise on the coded labels of each device, (N,); the paper has none.
        encoder: how the coded data is drawn; see `codedfl.coding.encode_all`.
        clip_norm: ``B``, the norm to which every sample is clipped before encoding; None for no clipping.
        participants: which devices upload coded data, (N,); None for all.
        draw: index of the draw; another index gives other coded data, with everything else the same.
        label_bound: ``B_Y``, to which the norms of a regression's labels were clipped; None for no bound. One-hot labels have
            norm 1 and need none.
    """

    coded_samples: int
    noise_variance: FloatArray
    label_noise_variance: FloatArray
    encoder: EncoderName = "auto"
    clip_norm: float | None = None
    participants: BoolArray | None = None
    draw: int = 0
    label_bound: float | None = None

    def __post_init__(self) -> None:
        require_at_least("coding.coded_samples", self.coded_samples, 1)
        require_at_least("coding.draw", self.draw, 0)
        if self.clip_norm is not None:
            require_positive("coding.clip_norm", self.clip_norm)
        if self.participants is not None and not self.participants.any():
            raise InputError("no device takes part in the coded upload: offer more, or use a scheme without one.")
        for name, values in (
            ("coding.noise_variance", self.noise_variance),
            ("coding.label_noise_variance", self.label_noise_variance),
        ):
            bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
            if bad.size:
                raise InputError(
                    f"{name} = {values[bad[0]]} of device {bad[0] + 1} must be a finite number, zero or more."
                )

    def without_noise(self) -> Code:
        """Return the code with no noise at all."""
        blank = 0 * self.noise_variance
        return replace(self, noise_variance=blank, label_noise_variance=blank)

    def uncoded(self) -> Code:
        """Return the code with everything blanked out but who takes part, for those who upload nothing coded."""
        blank = 0 * self.noise_variance
        return Code(1, blank, blank, participants=self.participants)

    @cached_property
    def uploading(self) -> BoolArray:
        """Which devices upload coded data, (N,)."""
        return np.ones(len(self.noise_variance), np.bool_) if self.participants is None else self.participants

    def streams(self, streams: Streams) -> Streams:
        """Return the streams of this draw of the coded data, given those of the setting."""
        return streams.child(f"coded-data-{self.draw}") if self.draw else streams
