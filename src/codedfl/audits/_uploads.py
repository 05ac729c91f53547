"""The audit of coded uploads: what budget every device of a configuration has, and what an attack on its upload finds."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codedfl._messages import shown
from codedfl._validation import require_positive
from codedfl.config import Config, to_toml
from codedfl.errors import InputError
from codedfl.experiment import Experiment, build_experiment
from codedfl.files import plain, write_atomically
from codedfl.parallel import one_blas_thread
from codedfl.privacy import AuditedUpload, DeviceAudit, ThreatModel, audit_device
from codedfl.progress import Progress
from codedfl.typing import ShortRepr

EPSILONS: dict[ThreatModel, str] = {"each-message": "epsilon", "sums-only": "epsilon_in_sum"}
"""The joint epsilon of a device, features and labels, under every threat model."""


@dataclass(frozen=True, repr=False)
class Audit(ShortRepr):
    """The audit of a configuration's coded uploads.

    Args:
        experiment: configuration, data and code.
        devices: one audit per device.
        known_ratio: share of a device's samples that the attacker knew; None without an attack.
        max_epsilon: largest joint epsilon, features and labels, that a device may have; None for no limit.
        threat_model: which epsilon ``max_epsilon`` limits.
    """

    experiment: Experiment
    devices: tuple[DeviceAudit, ...]
    known_ratio: float | None
    max_epsilon: float | None = None
    threat_model: ThreatModel = "each-message"

    def epsilon_of(self, device: DeviceAudit) -> float:
        """Return the joint epsilon of a device under the threat model; infinite if it is unbounded."""
        return float(getattr(device, EPSILONS[self.threat_model]))

    @property
    def exceeded(self) -> tuple[DeviceAudit, ...]:
        """The devices whose epsilon exceeds ``max_epsilon``, which an unbounded one always does; none without a limit."""
        limit = self.max_epsilon
        return () if limit is None else tuple(device for device in self.devices if self.epsilon_of(device) > limit)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists.

        JSON has no infinity, so an unbounded budget is None. Each device has a list ``unbounded`` with the names of the
        fields that are (``epsilon``, ``mi_dp.corrected`` and so on) and a list ``missing`` with the configuration fields that
        have to be set before ``epsilon`` can be finite. In ``mi_dp_bits``, the largest over devices, None is unbounded too. A
        ``norm_bound`` or ``label_bound`` of None means that there is no such bound. With a limit there are also
        ``max_epsilon``, ``threat_model`` and ``exceeded``, the names of the devices above the limit.
        """
        config = self.experiment.config
        limit: dict[str, Any] = {}
        if self.max_epsilon is not None:
            limit = {
                "max_epsilon": self.max_epsilon,
                "threat_model": self.threat_model,
                "exceeded": [device.name for device in self.exceeded],
            }
        summary: dict[str, Any] = plain(
            {
                "dataset": config.data.dataset,
                "seed": config.seed,
                "coded_samples": config.coding.coded_samples,
                "clip_norm": self.experiment.setting.code.clip_norm,
                "delta": config.privacy.delta,
                "known_ratio": self.known_ratio,
                "threat_models": {
                    "epsilon_features": "server sees each upload, and no labels are coded with the features",
                    "epsilon": "server sees each upload, features and labels",
                    "epsilon_in_sum": "server sees the sum of all uploads only",
                    "not_covered": "updates sent during training; `codedfl run --epsilon` and private schemes cover them",
                },
                "mi_dp_bits": {
                    name: max(getattr(device.mi_dp, name) for device in self.devices)
                    for name in ("printed", "corrected", "universal")
                },
                **limit,
                "devices": [{**asdict(device), "unbounded": _unbounded(device)} for device in self.devices],
            }
        )
        return summary


def _unbounded(device: DeviceAudit) -> list[str]:
    """Return the names of the budgets of a device that are infinite."""
    budgets = {name: getattr(device, name) for name in ("epsilon_features", "epsilon", "epsilon_in_sum")}
    budgets |= {f"mi_dp.{name}": bits for name, bits in asdict(device.mi_dp).items()}
    return [name for name, value in budgets.items() if math.isinf(value)]


def run_audit(
    config: Config,
    *,
    known_ratio: float | None = 0.9,
    max_epsilon: float | None = None,
    threat_model: ThreatModel = "each-message",
    progress: Progress | None = None,
) -> Audit:
    """Audit the coded upload of every participating device under SCFL or DP-CFL.

    Args:
        config: data, coded samples, noise and clipping.
        known_ratio: share of a device's samples that the attacker knows; None to skip the attack, which takes most of
            the time.
        max_epsilon: largest joint epsilon that a device may have, for `Audit.exceeded`; None for no limit.
        threat_model: which epsilon ``max_epsilon`` limits: ``each-message`` if the server sees each upload, ``sums-only`` if it
            sees only their sum.
        progress: where to report progress.

    Raises:
        InputError: ``max_epsilon`` is not a positive number, the threat model is unknown, or the configuration is impossible.

    Example:
        >>> from codedfl.config import load_config
        >>> audit = run_audit(load_config(overrides=[("data.devices", 2)]), known_ratio=None)
        >>> [device.name for device in audit.devices]
        ['device-01', 'device-02']
    """
    if max_epsilon is not None:
        require_positive("max_epsilon", max_epsilon)
    if threat_model not in EPSILONS:
        raise InputError(f"threat_model = {shown(threat_model)} is unknown: give {' or '.join(map(repr, EPSILONS))}.")
    progress = progress or Progress()
    experiment = build_experiment(config)
    setting = experiment.setting
    federation, code = setting.federation, setting.code
    audits = []
    with one_blas_thread():
        uploading = np.flatnonzero(code.uploading)
        for done, i in enumerate(uploading):
            upload = AuditedUpload(
                coded_samples=code.coded_samples,
                noise_variance=float(code.noise_variance[i]),
                label_noise_variance=float(code.label_noise_variance[i]),
                clip_norm=code.clip_norm,
                sum_noise_variance=float(np.sum(code.noise_variance[uploading])),
                sum_label_noise_variance=float(np.sum(code.label_noise_variance[uploading])),
                label_bound=code.label_bound,
            )
            audits.append(
                audit_device(
                    federation.device_names[i],
                    *federation.device(int(i)),
                    upload,
                    classification=federation.task == "classification",
                    delta=config.privacy.delta,
                    known_ratio=known_ratio,
                    rng=setting.streams.at("audit", device=int(i)),
                )
            )
            progress.update("auditing", done + 1, len(uploading))
    return Audit(experiment, tuple(audits), known_ratio, max_epsilon, threat_model)


def write_audit(audit: Audit, folder: Path | str) -> None:
    """Write ``audit.json``, ``audit.png`` and the configuration to a folder."""
    from codedfl.plotting import draw_audit  # matplotlib is slow to import and needed only here

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(audit.experiment.config))
    write_atomically(folder / "audit.json", json.dumps(audit.as_dict(), indent=2))
    write_atomically(folder / "audit.png", draw_audit(audit.devices, audit.known_ratio))
