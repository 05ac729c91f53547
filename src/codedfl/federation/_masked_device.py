"""A device's part in a masked upload, phase by phase, with its state kept in the vault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._vault import Vault
from codedfl.federation.masking import DeviceState, Masker, MaskingTerms
from codedfl.federation.transport import Packet
from codedfl.files import Arrays
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
    """Keys, shares, masked upload, agreement and unmasking; every state is in the vault before its reply leaves the device.

    Args:
        masker: the protocol.
        vault: where the state is kept.
    """

    masker: Masker
    vault: Vault

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
        """Answer a phase whose reply is bytes: ``keys``, ``shares``, ``agree`` or ``unmask``."""
        state = self._state()
        if phase == "keys":
            content = {"published": state.published}
        elif phase == "shares":
            state, shares = self.masker.share(state, _by_name(request, "key."))
            content = _named("share.", shares)
        elif phase == "agree":
            state, signature = self.masker.agree(state, _survivors(request))
            content = {"signature": signature}
        else:
            state, shares = self.masker.unmask(state, _survivors(request), _by_name(request, "signature."))
            content = _named("share.", shares)
        self._keep(state)
        return Packet({}, {"device": self.masker.device, "phase": phase, **content})

    def mask(self, request: Packet, features: FloatArray, labels: FloatArray) -> Arrays:
        """Return the masked upload, the same bytes every time."""
        state, (masked_features, masked_labels) = self.masker.mask(
            self._state(), _by_name(request, "share."), features, labels
        )
        self._keep(state)
        return {"features": masked_features, "labels": masked_labels}


def _survivors(request: Packet) -> list[str]:
    """Return whom a request names as survivors, unchecked: the protocol refuses what is no list of names."""
    return cast(list[str], request.values.get("survivors", []))


def _named(prefix: str, content: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}{name}": value for name, value in content.items()}


def _by_name(request: Packet, prefix: str) -> dict[str, bytes]:
    """Return the byte strings of a request by the device that they belong to."""
    return {
        name.removeprefix(prefix): value
        for name, value in request.values.items()
        if name.startswith(prefix) and isinstance(value, bytes)
    }
