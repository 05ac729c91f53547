"""A device's part in a masked upload, phase by phase, with its state kept in the vault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codedfl.errors import InputError
from codedfl.files import Arrays
from codedfl.flower._client_config import ClientConfig
from codedfl.flower._federation_config import FederationConfig
from codedfl.flower._packet import Packet
from codedfl.flower._vault import Vault
from codedfl.flower.masking import DeviceState, Masker, MaskingTerms
from codedfl.typing import FloatArray

PUBLIC_KEY = ".pub"


def read_roster(folder: Path, devices: tuple[str, ...]) -> dict[str, bytes]:
    """Read the public key of every device from files ``<device>.pub``.

    Raises:
        InputError: if one is missing.
    """
    keys = {}
    for name in devices:
        path = folder / f"{name}{PUBLIC_KEY}"
        if not path.is_file():
            raise InputError(
                f"{path} is missing, the public key of {name}: copy it from the operator's server/keys folder."
            )
        keys[name] = path.read_bytes()
    return keys


def masking_terms(federation: FederationConfig, roster: Mapping[str, bytes] | None) -> MaskingTerms:
    """Return what all parties of the masked upload agree on."""
    name = f"{federation.name}/{federation.prescription()[:16]}"
    return MaskingTerms(name, federation.devices, roster)


@dataclass(frozen=True)
class MaskedDevice:
    """Keys, shares, masked upload and unmasking; every state is in the vault before its reply leaves the device.

    Args:
        masker: the protocol.
        vault: where the state is kept.
    """

    masker: Masker
    vault: Vault

    phases = ("keys", "shares", "masked", "unmask")

    @classmethod
    def open(cls, folder: Path, config: ClientConfig, federation: FederationConfig, vault: Vault) -> MaskedDevice:
        """Open it with the keys in a device's folder; without any in an insecure set-up."""
        roster = None if config.insecure else read_roster(folder / "roster", federation.devices)
        key = None if config.insecure else (folder / config.key).read_bytes()
        return cls(Masker(masking_terms(federation, roster), config.name, key), vault)

    @property
    def _name(self) -> str:
        return f"masking-{self.masker.terms.federation.rpartition('/')[2]}"

    def _state(self) -> DeviceState:
        kept = self.vault.get(self._name)
        if kept is not None:
            return DeviceState.from_bytes(kept)
        return self._keep(self.masker.begin())

    def _keep(self, state: DeviceState) -> DeviceState:
        self.vault.put(self._name, state.to_bytes())
        return state

    def answer(self, phase: str, request: Packet) -> Packet:
        """Answer a phase whose reply is bytes: ``keys``, ``shares`` or ``unmask``."""
        state = self._state()
        if phase == "keys":
            content = {"published": state.published}
        elif phase == "shares":
            state, content = self.masker.share(state, _by_name(request, "key."))
        else:
            survivors = request.values.get("survivors")
            state, content = self.masker.unmask(state, survivors if isinstance(survivors, list) else [])  # type: ignore[arg-type]
        self._keep(state)
        prefix = "" if phase == "keys" else "share."
        return Packet(
            {},
            {
                "device": self.masker.device,
                "phase": phase,
                **{f"{prefix}{name}": value for name, value in content.items()},
            },
        )

    def mask(self, request: Packet, features: FloatArray, labels: FloatArray) -> Arrays:
        """Return the masked upload, the same bytes every time."""
        state, (masked_features, masked_labels) = self.masker.mask(
            self._state(), _by_name(request, "share."), features, labels
        )
        self._keep(state)
        return {"features": masked_features, "labels": masked_labels}


def _by_name(request: Packet, prefix: str) -> dict[str, bytes]:
    """Return the byte strings of a request by the device that they belong to."""
    return {
        name.removeprefix(prefix): value
        for name, value in request.values.items()
        if name.startswith(prefix) and isinstance(value, bytes)
    }
