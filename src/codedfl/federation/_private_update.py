"""Private updates of a device: what its budget still allows, and the sum of gradients with exact noise.

Errors of float64 before the noise are bounded by public numbers, and the noise is raised with the sensitivity
(`codedfl.privacy.gaussian_noise_on_grid`), as for uploads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl._messages import shown
from codedfl.coding import Geometry, Rows, clip_weights, clipped_labels
from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.federation._requests import agreed_training, requested_model, requested_round
from codedfl.federation.transport import Packet
from codedfl.privacy import BLOCK_ROWS, GaussianMechanism, Mechanism, Noise, epsilon_of
from codedfl.training import clipped_sum
from codedfl.typing import FloatArray
from codedfl.uploads import UNIT_ROUNDOFF

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


FARTHEST = 10.0
"""Norm of a row, in clip norms, beyond which it is scaled down: errors of rounding then have a bound that is public."""

LARGEST_NUMBER = 1e12
"""Largest clip norm or noise multiplier that a server may ask for."""


@dataclass(frozen=True, eq=False)
class PrivateRequest:
    """The work of a private round.

    Args:
        model: ``W_k``, (d, o), float32.
        round: ``k``.
        clip_norm: ``C``, that of a sample's gradient.
        noise_multiplier: ``z_k``, noise over ``C``.
        geometry: ``D``, the coordinates for clipping and noise.
    """

    model: FloatArray
    round: int
    clip_norm: float
    noise_multiplier: float
    geometry: Geometry

    @property
    def mechanism(self) -> GaussianMechanism:
        """What the update is to whoever sees it."""
        return GaussianMechanism(self.noise_multiplier)


def requested_private_train(request: Packet, federation: FederationConfig) -> PrivateRequest:
    """Check a request to train in a private federation.

    How much noise there is, the server says; what it may add up to, the device decides (`check_private_release`).

    Raises:
        InputError: naming what is wrong; the device does nothing.
    """
    agreed_training(federation)
    return PrivateRequest(
        requested_model(request, federation),
        requested_round(request),
        _positive(request, "clip_norm"),
        _positive(request, "noise_multiplier"),
        _geometry(request, federation.dimension),
    )


def make_private_update(rows: Rows, asked: PrivateRequest, federation: FederationConfig, noise: Noise) -> FloatArray:
    """Return ``D sum x r^T min(1, C / (||D x|| ||r||)) + N(0, C^2 z^2)`` over all rows of a device, (d, o), float32.

    Args:
        rows: the samples of the device.
        asked: what is to be computed.
        federation: what all devices agreed on.
        noise: the source of the noise.
    """
    label_norm = federation.label_norm
    assert federation.clip_norm is not None
    assert label_norm is not None
    farthest, model = FARTHEST * federation.clip_norm, asked.model.astype(np.float64)
    loss = federation.algorithm.loss_for(federation.data.task)
    total = np.zeros(model.shape)
    for block in rows.blocks(BLOCK_ROWS):
        features = block.features.astype(np.float64)
        features *= clip_weights(np.linalg.norm(features, axis=1), farthest)[:, None]
        total += clipped_sum(
            features,
            clipped_labels(block.labels.astype(np.float64), label_norm),
            asked.geometry.norms(features),
            model,
            asked.clip_norm,
            asked.geometry,
            loss,
        )
    deviation = asked.clip_norm * asked.noise_multiplier
    dimension, outputs = model.shape
    error = computation_error(len(rows), dimension, outputs, farthest, float(np.linalg.norm(model)), label_norm)
    noisy = noise.added(total, deviation, sensitivity=asked.clip_norm, error=error)
    return noisy.astype(np.float32)


def computation_error(
    samples: int, dimension: int, outputs: int, farthest: float, model_norm: float, label_norm: float
) -> float:
    """Return a bound on the error of a clipped sum in float64, in Euclidean norm, from public numbers alone.

    With ``u = 2^-53``, ``||x|| <= R``, ``||D|| <= 1 + 1e-3`` and residuals of at most ``rho = R ||W|| + B_Y``, in any order of
    summation, to first order and with a factor of 2 to spare for the rest:

    - an output errs by ``d u R ||W||``, and softmax by a few units more; neither softmax nor clipping, which projects onto
      a ball, makes an error larger. A sample's gradient then errs by ``R (d + 2 o + 20) u rho``;
    - norms and ``D x`` err by ``(3 d + 20) u`` relatively, so that a gradient is clipped to ``C`` up to as much;
    - the sum of ``l`` of them errs by ``l u`` times the sum of their norms, at most ``l R rho``.

    Args:
        samples: ``l``.
        dimension: ``d``.
        outputs: ``o``.
        farthest: ``R``.
        model_norm: ``||W||``.
        label_norm: ``B_Y``.
    """
    residual = farthest * model_norm + label_norm
    return 2 * UNIT_ROUNDOFF * samples * farthest * residual * (samples + 4 * dimension + 2 * outputs + 40)


def _positive(request: Packet, name: str) -> float:
    value = request.values.get(name)
    if type(value) is not float or not 0 < value <= LARGEST_NUMBER:
        raise InputError(f"{name} = {shown(value)} must be a number above 0 and up to {LARGEST_NUMBER:g}.")
    return value


def _geometry(request: Packet, dimension: int) -> Geometry:
    """Return the geometry that a server asks for: at most one direction, of length 1, that does not grow: ``||D|| <= 1``."""
    directions, factors = request.arrays.get("directions"), request.arrays.get("factors")
    if (
        not (isinstance(directions, np.ndarray) and isinstance(factors, np.ndarray))
        or directions.dtype != np.float32
        or factors.dtype != np.float64
        or directions.ndim != 2
        or factors.ndim != 1
        or len(factors) > 1
        or directions.shape != (dimension, len(factors))
    ):
        raise InputError(
            f"directions must be float32 with {dimension} rows and a column for each of the factors, at most one and float64."
        )
    columns = directions.astype(np.float64)
    if not (np.abs(columns.T @ columns - np.eye(len(factors))) <= 1e-3).all():
        raise InputError("directions must be orthonormal: the server's own computation went wrong.")
    if not ((factors >= 0) & (factors <= 1)).all():
        raise InputError(f"factors = {shown(factors.tolist())} must lie between 0 and 1.")
    return Geometry((columns,), (factors,)) if len(factors) else Geometry()
