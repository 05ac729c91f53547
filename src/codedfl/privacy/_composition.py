"""Composition of coded uploads with other mechanisms by Renyi divergence; needs dp-accounting (an extra)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from codedfl.errors import InputError
from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._inputs import require_probability
from codedfl.privacy._renyi import useful_orders
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class ComposedBudget:
    """The joint budget of several mechanisms on the same data.

    Attributes:
        epsilon: In nats.
        delta: The delta at which epsilon holds.
        order: The Renyi order that proves it.
    """

    epsilon: float
    delta: float
    order: float


def compose(
    uploads: Sequence[PrivacyAccountant],
    events: Sequence[Any],
    delta: float,
    orders: Sequence[float] | FloatArray | None = None,
) -> ComposedBudget:
    """Return the joint budget of coded uploads and other mechanisms on the same data, such as noisy updates during training.

    The Renyi curves are added order by order and converted by ``dp_accounting.rdp.compute_epsilon``. The other mechanisms
    must assume the same adjacency: their noise multipliers are relative to the change that one sample makes.

    Args:
        uploads: Accountants of coded uploads, all with the same adjacency.
        events: ``dp_accounting.DpEvent`` objects of the other mechanisms.
        delta: The delta of the result, in place of those of the uploads.
        orders: Renyi orders to choose from; by default those of dp-accounting and those useful for each upload.

    Returns:
        The budget; its epsilon is infinite if no order has a finite divergence.

    Raises:
        InputError: If dp-accounting is not installed, does not know an event, or the uploads differ in adjacency.

    Example (with the extra installed)::

        upload = PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5)
        training = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(50.0), 100)
        compose([upload], [training], delta=1e-5).epsilon  # 1.39
    """
    library = _dp_accounting()
    require_probability("delta", delta)
    kinds = {upload.adjacency for upload in uploads}
    if len(kinds) > 1:
        raise InputError(f"uploads have the adjacencies {', '.join(sorted(kinds))}: use the same one for all of them.")
    relations = library.NeighboringRelation
    accountant = library.rdp.RdpAccountant(
        _default_orders(library, uploads) if orders is None else np.asarray(orders, dtype=np.float64),
        relations.REPLACE_ONE if kinds == {"replace"} else relations.ADD_OR_REMOVE_ONE,
    )
    for event in events:
        try:
            accountant.compose(event)
        except (library.UnsupportedEventError, TypeError) as error:
            raise InputError(f"events: dp-accounting cannot compose {event!r}: {error}.") from error
    divergence = accountant.rdp + sum((upload.renyi(accountant.orders) for upload in uploads), np.zeros(1))
    if not np.isfinite(divergence).any():
        return ComposedBudget(np.inf, delta, 1.0)
    epsilon, order = library.rdp.compute_epsilon(accountant.orders, divergence, delta)
    return ComposedBudget(float(epsilon), delta, float(order))


def _default_orders(library: ModuleType, uploads: Sequence[PrivacyAccountant]) -> FloatArray:
    """Return the orders of dp-accounting and those at which the curves of the uploads are finite."""
    ratios = [upload.signal_to_noise for upload in uploads if np.isfinite(upload.signal_to_noise)]
    return np.unique(np.concatenate([library.rdp.RdpAccountant().orders, *map(useful_orders, ratios)]))


def _dp_accounting() -> ModuleType:
    """Return the module, or explain how to install it."""
    try:
        return importlib.import_module("dp_accounting")
    except ImportError as error:
        raise InputError(
            'dp-accounting is not installed, and composition needs it: run pip install "codedfl[privacy]".'
        ) from error
