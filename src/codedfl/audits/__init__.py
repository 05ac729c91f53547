"""Audits of a configuration: the privacy of its coded uploads, the privacy of its schemes by canaries, and its theory.

Example:
    >>> from codedfl.audits import run_audit
    >>> from codedfl.config import load_config
    >>> audit = run_audit(load_config(overrides={"data.devices": 2, "coding.clip_norm": 1.0}), known_ratio=None)
    >>> [device.name for device in audit.devices]
    ['device-01', 'device-02']
"""

from codedfl.audits._empirical import EmpiricalAudit, SchemeAudit, run_empirical_audit, write_empirical_audit
from codedfl.audits._theory import TheoryReport, run_theory, write_theory
from codedfl.audits._uploads import Audit, run_audit, write_audit

__all__ = [
    "Audit",
    "EmpiricalAudit",
    "SchemeAudit",
    "TheoryReport",
    "run_audit",
    "run_empirical_audit",
    "run_theory",
    "write_audit",
    "write_empirical_audit",
    "write_theory",
]
