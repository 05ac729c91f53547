"""An audit of all devices of a configuration."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.config import Config, to_toml
from codedfl.experiment._build import Experiment, build_experiment
from codedfl.experiment._summary import plain
from codedfl.files import write_atomically
from codedfl.parallel import one_blas_thread
from codedfl.privacy import DeviceAudit, Upload, audit_device
from codedfl.progress import Progress


@dataclass(frozen=True)
class Audit:
    """The audit of a configuration's coded uploads.

    Args:
        experiment: configuration, data and code.
        devices: one audit per device.
        known_ratio: share of a device's samples that the attacker knew; None without an attack.
    """

    experiment: Experiment
    devices: tuple[DeviceAudit, ...]
    known_ratio: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings; None stands for infinity, that is, no bound."""
        config = self.experiment.config
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
                    "not_covered": "updates sent during training",
                },
                "mi_dp_bits": {
                    name: max(getattr(device.mi_dp, name) for device in self.devices)
                    for name in ("printed", "corrected", "universal")
                },
                "devices": [asdict(device) for device in self.devices],
            }
        )
        return summary


def run_audit(
    config: Config,
    *,
    known_ratio: float | None = 0.9,
    progress: Progress | None = None,
) -> Audit:
    """Audit the coded upload of every participating device under SCFL or DP-CFL.

    Args:
        config: data, coded samples, noise and clipping.
        known_ratio: share of a device's samples that the attacker knows; None to skip the attack, which takes most of
            the time.
        progress: where to report progress.

    Example:
        >>> from codedfl.experiment import load_config
        >>> audit = run_audit(load_config(overrides=[("data.devices", 2)]), known_ratio=None)
        >>> [device.name for device in audit.devices]
        ['device-01', 'device-02']
    """
    progress = progress or Progress()
    experiment = build_experiment(config)
    setting = experiment.setting
    federation, code = setting.federation, setting.code
    audits = []
    with one_blas_thread():
        uploading = np.flatnonzero(code.uploading)
        for done, i in enumerate(uploading):
            upload = Upload(
                coded_samples=code.coded_samples,
                noise_variance=float(code.noise_variance[i]),
                label_noise_variance=float(code.label_noise_variance[i]),
                clip_norm=code.clip_norm,
                sum_noise_variance=float(np.sum(code.noise_variance[uploading])),
                sum_label_noise_variance=float(np.sum(code.label_noise_variance[uploading])),
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
    return Audit(experiment, tuple(audits), known_ratio)


def write_audit(audit: Audit, folder: Path | str) -> None:
    """Write ``audit.json``, ``audit.png`` and the configuration to a folder."""
    from codedfl.plotting import draw_audit  # matplotlib is slow to import and needed only here

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(audit.experiment.config))
    write_atomically(folder / "audit.json", json.dumps(audit.as_dict(), indent=2))
    write_atomically(folder / "audit.png", draw_audit(audit.devices, audit.known_ratio))
