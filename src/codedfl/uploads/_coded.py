"""What coded rows and their factors have in common: their noise, and what they tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from codedfl.coding import CodedData, Rows
from codedfl.errors import InputError
from codedfl.privacy import CodedMechanism, PrivacyAccountant, Release, coded_noise, mi_dp_bits, signal_to_noise
from codedfl.setting import Code, Setting
from codedfl.typing import FloatArray
from codedfl.uploads._upload import AgreedNoise, Coverage, HeldT, Terms, Upload

NORMAL_ERROR = 2.0**-50
"""Mean distance of a normal number of numpy from an ideal one: its sampler takes 52 bits, and its widest layer of 3.66 has values
that are 3.66 / 2^52 apart. That tables and rare branches err no more than the other half of this is an assumption."""


@dataclass(frozen=True)
class Coded(Upload[HeldT]):
    """Coded data: a projection of the samples that devices may fail to cover, plus noise.

    Args:
        noise: whether the setting's noise is added. The original CFL-FB and CodedFedL add none.
        budget_share: share of the privacy target, if there is one, that the upload may use.
    """

    noise: bool = True
    budget_share: float = 1.0

    is_coded = True
    stands_for_data = True

    @property
    def _projection(self) -> str:
        return "projection + noise" if self.noise else "weighted projection"

    def code(self, setting: Setting, coverage: Coverage) -> Code:
        """Return the code of the setting, with the noise that its privacy target asks for if there is one.

        Features and labels get half of the signal-to-noise ratio each. Rows are added up, so a server that sees sums only needs
        the noise in the sum; second moments of factors do not share their noise.
        """
        code, target = setting.code, setting.privacy
        if target is None or not self.noise:
            return code
        if code.clip_norm is None:
            raise InputError('coding.clip_norm = 0 bounds no sample: set a norm, or "auto".')
        rows = sum(coverage.coded_rows(code.coded_samples))
        noise = coded_noise(target, rows, code.clip_norm, self.budget_share)
        if target.sums_only and self.can_be_summed:
            noise = noise / int(np.count_nonzero(code.uploading))
        ones = np.ones(len(code.uploading))
        return replace(code, noise_variance=noise[0] * ones, label_noise_variance=noise[1] * ones)

    def agreed_noise(self, terms: Terms) -> AgreedNoise | None:
        """Return the noise of the share of a target, half of the signal-to-noise ratio for features and for labels each."""
        if terms.target is None or terms.clip_norm is None or not self.noise:
            return None
        noise, label_noise = coded_noise(terms.target, terms.coded_samples, terms.clip_norm, self.budget_share).tolist()
        mechanism = self.mechanism(terms, noise, label_noise, 0)
        return None if mechanism is None else AgreedNoise(noise, label_noise, mechanism)

    def noise_levels(self, setting: Setting, coverage: Coverage) -> tuple[FloatArray, FloatArray]:
        """Return the variances that each device adds."""
        code = self.code(setting, coverage)
        on = code.uploading * float(self.noise)
        return on * code.noise_variance, on * code.label_noise_variance

    def releases(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the coded rows, or the factor, which tells as much."""
        return self._releases(setting, coverage, device)

    def releases_of_features(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the coded features."""
        return self._releases(setting, coverage, device, labels=False)

    def releases_in_sum(self, setting: Setting, coverage: Coverage, device: int) -> tuple[Release, ...]:
        """Return the coded rows with the noise of all devices; factors are kept apart."""
        return self._releases(setting, coverage, device, in_sum=self.can_be_summed)

    def _releases(
        self, setting: Setting, coverage: Coverage, device: int, *, labels: bool = True, in_sum: bool = False
    ) -> tuple[Release, ...]:
        code, target = self.code(setting, coverage), setting.privacy
        if not code.uploading[device]:
            return ()
        if not self.noise:
            return (Release(self.message, None),)
        sums_only = target is not None and target.sums_only and self.can_be_summed
        shared = (
            in_sum and target is not None and not sums_only
        )  # by devices that have as much noise each as the target asks for
        noise, label_noise = (
            float(values[code.uploading].sum() if (in_sum or sums_only) and not shared else values[device])
            for values in (code.noise_variance, code.label_noise_variance)
        )
        terms = Terms.of(setting, sum(coverage.coded_rows(code.coded_samples)))
        terms = terms if labels else replace(terms, outputs=0)
        mechanism = self.mechanism(terms, noise, label_noise, int(setting.federation.samples[device]))
        if shared and mechanism is not None:
            ratio = mechanism.signal_to_noise / int(np.count_nonzero(code.uploading))
            mechanism = replace(mechanism, signal_to_noise=ratio)
        return (Release(self.message, mechanism),)

    def mechanism(
        self,
        terms: Terms,
        noise_variance: float,
        label_noise_variance: float,
        samples: int,  # noqa: ARG002 (of no account)
    ) -> CodedMechanism | None:
        """Return rows whose law a sample changes by ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2`` at most."""
        if terms.clip_norm is None:
            return None
        ratio = signal_to_noise(terms.clip_norm, noise_variance)
        if terms.outputs:
            if terms.label_bound is None:
                return None
            ratio += signal_to_noise(terms.label_bound, label_noise_variance)
        return CodedMechanism(terms.coded_samples, ratio) if ratio < math.inf else None

    def sensitivities(self, terms: Terms, samples: int) -> tuple[float, float]:  # noqa: ARG002 (of no account)
        """Return the bounds on the norms of a sample."""
        return (
            math.inf if terms.clip_norm is None else terms.clip_norm,
            math.inf if terms.label_bound is None else terms.label_bound,
        )

    def largest_ratio(self, terms: Terms, epsilon: float, delta: float) -> float:
        """Return the signal-to-noise ratio of a budget."""
        return 1 / PrivacyAccountant(coded_samples=terms.coded_samples, epsilon=epsilon, delta=delta).noise_variance

    def coded_rows(self, terms: Terms) -> int:
        """Return ``c``."""
        return terms.coded_samples

    def mi_dp(self, setting: Setting, coverage: Coverage) -> tuple[float, str]:
        """Return the bound of the device with the least noise; a factor has that of its rows."""
        noise = self.noise_levels(setting, coverage)[0][setting.code.uploading]
        bits = mi_dp_bits(max(coverage.coded_rows(setting.code.coded_samples)), float(noise.min()))
        return bits, "data-free bound for one entry of the coded features" if math.isfinite(
            bits
        ) else "no bound: no noise"


def uncovered(setting: Setting, coverage: Coverage, batch: int) -> list[Rows]:
    """Return the samples that each device encodes, none if it takes no part."""
    uploading = setting.code.uploading
    return [coverage.uncovered(i, batch) if uploading[i] else setting.no_rows for i in range(len(uploading))]


def encoded_samples(setting: Setting, coverage: Coverage, batches: int) -> FloatArray:
    """Return how many samples each device encodes in every coded batch, (batches, N)."""
    return np.array(
        [[len(part) for part in uncovered(setting, coverage, batch)] for batch in range(batches)], np.float64
    )


def noise_of_coded(held: tuple[CodedData, ...]) -> float:
    """Return the variance of the noise in every entry of coded features."""
    return held[0].noise_variance
