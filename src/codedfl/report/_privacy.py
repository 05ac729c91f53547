"""Privacy: what covers what, device by device, with warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.privacy import LITTLE_PRIVACY
from codedfl.report._html import Heading, Html, folded, listed, markup, section, table
from codedfl.report._record import Record
from codedfl.results import bound, is_number, number

COVERS = {
    "everything": "everything that devices send",
    "upload": "the upload alone; updates travel in the clear",
    "nothing": "nothing",
}


def privacy_section(record: Record, prefix: str = "") -> Html:
    """Return the statement of every scheme, the epsilon of every device, and what no number covers."""
    schemes = [scheme for scheme in record.schemes if scheme.get("privacy")]
    if not schemes:
        return _of_federation(record, prefix)
    outside = dict.fromkeys(clause for scheme in schemes for clause in scheme["privacy"].get("outside", ()))
    return section(
        f"{prefix}privacy",
        "Privacy",
        listed([*_warnings(schemes), *_silent_devices(record)], "warnings"),
        _statements(schemes),
        _by_device(record, schemes, prefix),
        folded(f"{prefix}outside", "What no epsilon covers", listed(outside)) if outside else Html(),
    )


def _of_federation(record: Record, prefix: str) -> Html:
    """Return what a server knows about the noise of its devices while there is no guarantee yet."""
    if not any(device.get("uploaded") and is_number(device.get("noise_variance")) for device in record.devices):
        return Html()
    sentence = (
        "Noise is what devices declare; what each has released, and its epsilon, is in the ledger that it keeps itself."
    )
    return section(
        f"{prefix}privacy",
        "Privacy",
        listed(_silent_devices(record), "warnings"),
        markup('<p class="hint">{}</p>', sentence),
    )


def _silent_devices(record: Record) -> list[Html]:
    """Return a warning that names the devices of a federation whose uploads have no noise."""
    silent = [
        str(each["device"]) for each in record.devices if each.get("uploaded") and each.get("noise_variance") == 0
    ]
    if not silent:
        return []
    return [markup("<strong>{}</strong>: uploads without noise, nothing bounds what they reveal.", ", ".join(silent))]


def _warnings(schemes: Sequence[Mapping[str, Any]]) -> list[Html]:
    warnings = []
    for covers, words in (("nothing", "nothing bounds what devices reveal"), ("upload", COVERS["upload"])):
        names = [str(s["title"]) for s in schemes if s["privacy"].get("covers") == covers]
        if names:
            what = words if covers == "nothing" else f"epsilon covers {words}"
            warnings.append(markup("<strong>{}</strong>: {}.", ", ".join(names), what))
    for scheme in schemes:
        epsilons = scheme["privacy"].get("devices", ())
        weak = [epsilon for epsilon in epsilons if is_number(epsilon) and epsilon > LITTLE_PRIVACY]
        if weak:
            words = f"epsilon is above {number(LITTLE_PRIVACY)} for {len(weak)} device(s), which guarantees next to nothing."
            warnings.append(markup("<strong>{}</strong>: {}", scheme["title"], words))
    return warnings


def _statements(schemes: Sequence[Mapping[str, Any]]) -> Html:
    measured = any("mi_dp" in scheme for scheme in schemes)
    columns = [
        Heading("scheme", number=False),
        Heading("epsilon"),
        Heading("delta"),
        Heading("covers", number=False),
        Heading("server sees", number=False),
        *((Heading("MI-DP of the upload, bits"),) if measured else ()),
    ]
    rows = [
        [
            scheme["title"],
            bound(statement.get("epsilon")) if statement.get("covers") != "nothing" else bound(None),
            number(statement.get("delta")),
            markup('<span class="covers {0}">{1}</span>', statement.get("covers", ""), _covers(statement)),
            statement.get("threat_model", ""),
            *((_bits(scheme),) if measured else ()),
        ]
        for scheme in schemes
        for statement in [scheme["privacy"]]
    ]
    return table(columns, rows, "Privacy of one sample more or less, the largest over devices", "cards")


def _covers(statement: Mapping[str, Any]) -> str:
    return COVERS.get(str(statement.get("covers")), str(statement.get("covers", "")))


def _bits(scheme: Mapping[str, Any]) -> str:
    if is_number(scheme.get("mi_dp_bits")):
        return number(scheme["mi_dp_bits"])
    return str(scheme.get("mi_dp", "")).replace("unbounded", "no bound")


def _by_device(record: Record, schemes: Sequence[Mapping[str, Any]], prefix: str) -> Html:
    """Return the epsilon of each device for schemes that have one; nothing if none has."""
    bounded = [s for s in schemes if any(map(is_number, s["privacy"].get("devices", ())))]
    if not bounded or not record.names:
        return Html()
    columns = [Heading("device", number=False), *(Heading(str(scheme["title"])) for scheme in bounded)]
    rows = [[name, *(_epsilon(s["privacy"]["devices"], i) for s in bounded)] for i, name in enumerate(record.names)]
    return folded(
        f"{prefix}privacy-by-device",
        "Epsilon by device",
        table(columns, rows, "Epsilon of each device", "cards"),
        opened=len(rows) <= 30,
    )


def _epsilon(epsilons: Sequence[Any], device: int) -> Html:
    value = epsilons[device] if device < len(epsilons) else None
    kind = "weak" if not is_number(value) or value > LITTLE_PRIVACY else ""
    return markup('<span class="{}">{}</span>', kind, bound(value))
