"""What a device may still reveal where one epsilon covers everything that it sends."""

from __future__ import annotations

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.privacy import Mechanism, epsilon_of

_SAME = 1e-9
"""An epsilon that noise was solved for and that is computed back differs by less than this, relatively."""


def require_as_agreed(client: ClientConfig, federation: FederationConfig) -> None:
    """Refuse noise of a device's own where all devices agreed on it, and a guarantee that is weaker than what the device wants.

    Raises:
        InputError: naming the field of ``client.toml``, its value and what to do.
    """
    own = {"noise_variance": client.privacy.noise_variance, "label_noise_variance": client.privacy.label_noise_variance}
    for name, value in own.items():
        if value is not None:
            raise InputError(
                f"privacy.{name} = {value:g} of client.toml has no meaning with scheme = {federation.scheme!r}, whose noise"
                f" follows from privacy.epsilon = {federation.privacy.epsilon:g} of federation.toml: leave it out."
            )
    _require_not_stricter(client, federation)


def check_private_release(
    client: ClientConfig,
    federation: FederationConfig,
    ledger: ReleaseLedger,
    mechanism: Mechanism,
    reserved: tuple[Mechanism, ...] = (),
) -> None:
    """Refuse a release with which a device would reveal more than what was agreed on, whoever asks for it.

    What this federation has already been sent counts for the epsilon of ``federation.toml``, and everything in the ledger for
    ``policy.largest_epsilon`` of ``client.toml``; all of it composes as in a simulation, by `codedfl.privacy.epsilon_of`.

    A server that chooses noise as it goes learns no more: the mechanism of the upload is fixed beforehand and counts from the
    start, so what is left is one bound on ``sum mu_k^2`` of Gaussian mechanisms, which holds however each is chosen.

    Args:
        client: the device.
        federation: what all devices agreed on.
        ledger: what was released before.
        mechanism: that of the release.
        reserved: mechanisms of what this federation may still ask for, besides.

    Raises:
        InputError: naming the limit, the epsilon that would be reached and what to do.
    """
    agreed = federation.privacy
    _require_not_stricter(client, federation)
    before = ledger.other_epsilon(federation.name)
    if before is None:
        raise InputError(
            f"the ledger has a release to name = {shown(federation.name)} of federation.toml whose epsilon is unknown, so that"
            " no epsilon can be kept: give this federation another name."
        )
    added = (mechanism, *reserved)
    reached = before + epsilon_of((*ledger.mechanisms(federation.name), *added), agreed.delta)
    if reached > agreed.epsilon * (1 + _SAME):
        raise InputError(
            f"epsilon = {reached:.6g} would be above privacy.epsilon = {agreed.epsilon:g} of federation.toml, for everything that"
            " this device has sent: nothing more is sent to this federation."
        )
    largest = client.policy.largest_epsilon
    if largest == 0:
        return
    others = ledger.other_epsilon()
    rule = f"policy.largest_epsilon = {largest:g} of client.toml"
    if others is None:
        raise InputError(
            f"epsilon of an earlier release in the ledger is unknown, which {rule} does not allow: set the limit to 0 to take"
            " part all the same."
        )
    total = others + epsilon_of((*ledger.mechanisms(), *added), client.privacy.delta)
    if total > largest * (1 + _SAME):
        raise InputError(
            f"epsilon = {total:.6g} of everything in the ledger would be above {rule}: raise the limit, or leave this federation."
        )


def _require_not_stricter(client: ClientConfig, federation: FederationConfig) -> None:
    """Refuse a federation whose guarantee is weaker than what the device wants."""
    privacy, agreed = client.privacy, federation.privacy
    if 0 < privacy.epsilon < agreed.epsilon or (privacy.epsilon > 0 and privacy.delta < agreed.delta):
        raise InputError(
            f"privacy.epsilon = {privacy.epsilon:g} with delta = {privacy.delta:g} of client.toml is stricter than the epsilon = "
            f"{agreed.epsilon:g} with delta = {agreed.delta:g} of federation.toml: leave this federation, or agree on less."
        )
