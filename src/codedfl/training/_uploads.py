"""The upload before training, and its cost: coded rows, or their triangular factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import numpy as np

from codedfl.coding import CodedData, Rows, SubspaceSketch, encode_all, encode_factors, require_rows_for_factor
from codedfl.errors import InputError
from codedfl.fleet import BITS_PER_NUMBER
from codedfl.privacy import CodedMechanism, signal_to_noise
from codedfl.training._devices import DevicePlan
from codedfl.training._privacy import Release, coded_noise
from codedfl.training._setting import Code, Setting
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class UploadCost:
    """The cost of the one-shot upload for each device and the server, with devices in parallel.

    Args:
        bits: what each device sends, such as coded features and labels, (N,).
        encoding_macs: arithmetic on each device to make it, (N,).
        encoding_s: time for ``encoding_macs``, (N,).
        upload_s: time to send ``bits`` at the device's own mean uplink rate, or as measured, (N,).
        server_macs: arithmetic at the server before the first round, such as additions to sum the coded datasets.
        server_s: time for ``server_macs``.
    """

    bits: FloatArray
    encoding_macs: FloatArray
    encoding_s: FloatArray
    upload_s: FloatArray
    server_macs: float
    server_s: float

    @property
    def total_s(self) -> float:
        """Time from the start until the server can begin: the slowest device, then the server."""
        return float(np.max(self.encoding_s + self.upload_s)) + self.server_s

    @classmethod
    def of(cls, setting: Setting, coded_rows: int, samples_coded_with: FloatArray) -> UploadCost:
        """Charge an upload of ``coded_rows`` rows.

        Args:
            setting: the fleet and the channel.
            coded_rows: rows that each device sends, if it sends any.
            samples_coded_with: for each device, the sum over its samples of the rows they are projected to, (N,).
        """
        width = setting.federation.dimension + setting.federation.outputs
        numbers = setting.code.uploading * float(coded_rows * width)
        return cls.charged(setting, numbers, samples_coded_with * width, float(numbers.sum()))

    @classmethod
    def of_factors(cls, setting: Setting, samples: FloatArray, factors: int = 1) -> UploadCost:
        """Charge an upload of triangular factors, with ``n = d + o`` columns.

        A device multiplies out ``Z^T Z`` (``l n^2 / 2``), factorises it (``n^3 / 3``) and multiplies two triangles (``n^3 / 3``).
        The server multiplies out the second moment of every device (``n^3 / 3``) and factorises the sum (``n^3 / 3``).

        Args:
            setting: the fleet and the channel.
            samples: for each device, the samples that it encodes, over all factors, (N,).
            factors: factors that each device sends, if it sends any.
        """
        width = float(setting.federation.dimension + setting.federation.outputs)
        uploading, cube = setting.code.uploading * float(factors), width**3 / 3
        return cls.charged(
            setting,
            uploading * (width * (width + 1) / 2),
            samples * width**2 / 2 + uploading * 2 * cube,
            float(uploading.sum() + factors) * cube,
        )

    @classmethod
    def charged(
        cls, setting: Setting, numbers: FloatArray, encoding_macs: FloatArray, server_macs: float
    ) -> UploadCost:
        """Charge numbers sent and arithmetic done, at the rates of the setting.

        Args:
            setting: the fleet and the channel.
            numbers: sent by each device, (N,).
            encoding_macs: arithmetic on each device, (N,).
            server_macs: arithmetic at the server.
        """
        bits = BITS_PER_NUMBER * numbers
        encoding_s, upload_s = setting.timing().preparation_s(bits, encoding_macs, setting.federation.samples)
        return cls(
            bits=bits,
            encoding_macs=encoding_macs,
            encoding_s=encoding_s,
            upload_s=upload_s,
            server_macs=server_macs,
            server_s=server_macs / setting.server_mac_rate,
        )

    def with_server_macs(self, setting: Setting, macs: float) -> UploadCost:
        """Return the cost with more arithmetic at the server before the first round."""
        total = self.server_macs + macs
        return replace(self, server_macs=total, server_s=total / setting.server_mac_rate)


class Held:
    """Base of whatever else an upload leaves at the server."""


Uploaded = tuple[CodedData | SubspaceSketch | Held, ...]
"""What the server holds after the upload."""


def coded_of(uploaded: Uploaded) -> tuple[CodedData, ...]:
    """Return the coded data among what the server holds."""
    return tuple(held for held in uploaded if isinstance(held, CodedData))


class Upload(Protocol):
    """What devices send before training: its law, its cost and what its privacy depends on."""

    @property
    def noise(self) -> bool:
        """Whether noise protects it."""

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[Uploaded, UploadCost]:
        """Return what the server holds afterwards, for every coded batch of the plan, and the cost."""

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:
        """Return the cost alone, without drawing anything."""

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:
        """Refuse a setting in which it cannot be made, before any work."""

    def depends_on(self, code: Code) -> Code:
        """Return the code with everything blanked out that this upload does not use."""

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:
        """Return what a device sends, each with the mechanism that it is to whoever sees it."""


def without_code(code: Code) -> Code:
    """Return a code with everything blanked out but who takes part, for schemes that upload nothing coded."""
    blank = 0 * code.noise_variance
    return Code(1, blank, blank, participants=code.participants)


@dataclass(frozen=True)
class CodedUpload:
    """Coded data: a projection of the samples that devices may fail to cover, plus noise.

    ``rows`` sends the ``c`` coded rows, and the server adds up the rows of all devices. ``factor`` sends their triangular
    factor, drawn from its own law, and the server adds up second moments: it keeps devices apart, so the sum is as exact as
    that of ``N c`` rows. A factor reveals as much as its rows, takes ``(d + o)(d + o + 1) / 2`` numbers whatever ``c``, and
    allows full-batch steps only.

    Args:
        noise: whether the setting's noise is added. The original CFL-FB and CodedFedL add none.
        kind: ``rows`` or ``factor``.
        budget_share: share of the privacy target, if there is one, that the upload may use.
    """

    noise: bool = True
    kind: Literal["rows", "factor"] = "rows"
    budget_share: float = 1.0

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:
        """Refuse a factor of fewer coded rows than columns."""
        if self.kind == "factor":
            columns = setting.federation.dimension + setting.federation.outputs
            require_rows_for_factor(min(plan.coded_rows(setting.code.coded_samples)), columns)

    def depends_on(self, code: Code) -> Code:
        """Return the code, without noise if none is added."""
        return code if self.noise else code.without_noise()

    def code(self, setting: Setting, plan: DevicePlan) -> Code:
        """Return the code of the setting, with the noise that its privacy target asks for if there is one.

        Features and labels get half of the signal-to-noise ratio each. Rows are added up, so a server that sees sums only needs
        the noise in the sum; second moments of factors do not share their noise.
        """
        code, target = setting.code, setting.privacy
        if target is None or not self.noise:
            return code
        if code.clip_norm is None:
            raise InputError('coding.clip_norm = 0 bounds no sample: set a norm, or "auto".')
        rows = sum(plan.coded_rows(code.coded_samples))
        noise = coded_noise(target, rows, code.clip_norm, self.budget_share)
        if target.sums_only and self.kind == "rows":
            noise = noise / int(np.count_nonzero(code.uploading))
        ones = np.ones(len(code.uploading))
        return replace(code, noise_variance=noise[0] * ones, label_noise_variance=noise[1] * ones)

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:
        """Return the coded rows, or the factor, which tells as much."""
        code, target = self.code(setting, plan), setting.privacy
        if not code.uploading[device]:
            return ()
        message = "coded rows" if self.kind == "rows" else "factor of coded rows"
        if not self.noise or code.clip_norm is None or setting.label_bound is None:
            return (Release(message, None),)
        summed = target is not None and target.sums_only and self.kind == "rows"
        noise, label_noise = (
            float(values[code.uploading].sum() if summed else values[device])
            for values in (code.noise_variance, code.label_noise_variance)
        )
        ratio = signal_to_noise(code.clip_norm, noise) + signal_to_noise(setting.label_bound, label_noise)
        mechanism = CodedMechanism(sum(plan.coded_rows(code.coded_samples)), ratio) if ratio < math.inf else None
        return (Release(message, mechanism),)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[CodedData, ...], UploadCost]:
        """Encode on all devices and sum at the server, for every coded batch of the plan."""
        code = self.code(setting, plan)
        on = code.uploading * float(self.noise)
        encode = encode_factors if self.kind == "factor" else self._rows_encoder(setting, plan)
        coded = tuple(
            encode(
                _uncovered(setting, plan, batch),
                rows,
                noise_variance=on * code.noise_variance,
                label_noise_variance=on * code.label_noise_variance,
                streams=code.streams(setting.streams),
                batch=batch,
                clip_norm=code.clip_norm,
                workers=setting.workers,
            )
            for batch, rows in enumerate(plan.coded_rows(code.coded_samples))
        )
        return coded, self.cost(setting, plan)

    @staticmethod
    def _rows_encoder(setting: Setting, plan: DevicePlan) -> Callable[..., CodedData]:
        """Return the encoder of rows that the code asks for, with the Gram matrix if it is known and of use."""
        code = setting.code
        as_they_are = plan.coded_for_all and code.clip_norm is None and code.uploading.all()
        known_gram = setting.known_gram if as_they_are and code.encoder != "direct" else None
        return partial(encode_all, encoder=code.encoder, gram=known_gram)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:
        """Charge for the rows that devices encode in every coded batch, and for what they send."""
        batches = plan.coded_rows(setting.code.coded_samples)
        encoded = np.array([[len(part) for part in _uncovered(setting, plan, batch)] for batch in range(len(batches))])
        if self.kind == "factor":
            return UploadCost.of_factors(setting, encoded.sum(axis=0).astype(np.float64), len(batches))
        return UploadCost.of(setting, sum(batches), np.array(batches, np.float64) @ encoded)

    def rows_held(self, setting: Setting, plan: DevicePlan) -> int:
        """Return how many rows the server holds afterwards: coded rows, or those of the factors."""
        batches = plan.coded_rows(setting.code.coded_samples)
        columns = setting.federation.dimension + setting.federation.outputs
        return len(batches) * columns if self.kind == "factor" else sum(batches)


def _uncovered(setting: Setting, plan: DevicePlan, batch: int) -> list[Rows]:
    """Return the samples that each device encodes, none if it takes no part."""
    uploading = setting.code.uploading
    return [plan.uncovered(i, batch) if uploading[i] else setting.no_rows for i in range(len(uploading))]
