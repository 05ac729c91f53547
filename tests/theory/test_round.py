from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codedfl.coding import Rows
from codedfl.errors import InputError
from codedfl.theory import RoundLaw
from tests.theory.rounds import random_round


def make(**changes: Any) -> RoundLaw:
    return random_round(np.random.default_rng(0), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coded_samples": 0}, "coded_samples = 0 must be 1 or more"),
        ({"coded_samples": 4.5}, "coded_samples = 4.5 must be a whole number"),
        ({"server_batch": 0}, "server_batch = 0 must be 1 or more"),
        ({"local_steps": 0}, "local_steps = 0 must be 1 or more"),
        ({"server_batch": 13}, "server_batch = 13 exceeds coded_samples = 12: lower it"),
        ({"device_weight": 1.5}, "device_weight = 1.5 must be between 0 and 1"),
        ({"device_weight": np.nan}, "device_weight = nan must be between 0 and 1"),
        ({"arrival_probability": np.ones(2)}, r"arrival_probability has shape \(2,\) for 3 device\(s\)"),
        ({"inverse_batch": np.ones((3, 1))}, r"inverse_batch has shape \(3, 1\) for 3 device\(s\)"),
        ({"noise_variance": np.ones(4)}, r"noise_variance has shape \(4,\) for 3 device\(s\)"),
        ({"label_noise_variance": np.ones(1)}, r"label_noise_variance has shape \(1,\) for 3 device\(s\)"),
        ({"uploading": np.array([True])}, r"uploading has shape \(1,\) for 3 device\(s\)"),
        ({"arrival_probability": np.array([1.0, 0.0, 0.5])}, "arrival_probability = 0.0 of device 2 must be above 0"),
        ({"arrival_probability": np.array([1.0, 0.4, 1.5])}, "arrival_probability = 1.5 of device 3 must be above 0"),
        ({"arrival_probability": np.array([np.nan, 1, 1])}, "arrival_probability = nan of device 1 must be above 0"),
        ({"noise_variance": np.array([0.0, -0.5, 1.0])}, "noise_variance = -0.5 must be zero or more"),
        ({"noise_variance": np.array([0.0, np.inf, 1.0])}, r"noise_variance has 1 value\(s\) that are NaN or infinite"),
        ({"label_noise_variance": np.array([0.0, 0.0, -1.0])}, "label_noise_variance = -1.0 must be zero or more"),
        ({"inverse_batch": np.array([1 / 4, 1 / 8, 1.0])}, r"inverse_batch must lie between 1 / l_i and 1"),
        ({"inverse_batch": np.array([1 / 4, np.nan, 1.0])}, r"inverse_batch must lie between 1 / l_i and 1"),
    ],
)
def test_a_round_that_cannot_be_is_refused_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        make(**changes)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


def test_a_whole_batch_is_allowed_in_spite_of_rounding() -> None:
    round = make(inverse_batch=1 / np.array([4.0, 7.0, 3.0]) - 1e-16)
    assert round.batch_excess == pytest.approx([0, 0, 0], abs=1e-12)


def test_what_follows_from_the_fields() -> None:
    round = make(
        inverse_batch=np.array([0.5, 1.0, 1 / 3]),
        uploading=np.array([True, False, True]),
        noise_variance=np.array([0.25, 8.0, 0.5]),
        label_noise_variance=np.array([1.0, 8.0, 2.0]),
        device_weight=0.3,
    )
    assert (round.devices, round.dimension, round.outputs) == (3, 3, 2)
    assert round.samples.tolist() == [4, 7, 3]
    assert round.batch_excess == pytest.approx([(4 - 2) / 2, (7 - 1) / 1, 0.0], abs=1e-12)
    assert round.weights.tolist() == [0.3, 1.0, 0.3]
    assert round.total_noise == 0.75
    assert round.total_label_noise == 3.0
    X, Y = (np.vstack([getattr(part, name) for part in round.parts]) for name in ("features", "labels"))
    np.testing.assert_allclose(round.gram.features, X.T @ X, rtol=1e-12)
    np.testing.assert_allclose(round.gram.cross, X.T @ Y, rtol=1e-12)
    coded = np.r_[0:4, 11:14]
    np.testing.assert_allclose(round.coded_gram.features, X[coded].T @ X[coded], rtol=1e-12)
    assert round.coded_gram.samples == 7


def test_by_default_everyone_uploads_without_noise_on_labels() -> None:
    round = make()
    assert round.covered.all()
    assert round.coded_gram is round.gram
    assert round.total_label_noise == 0.0
    assert round.weights.tolist() == [0.5, 0.5, 0.5]
    assert round.local_steps == 1


def test_a_batch_of_less_than_one_sample_is_refused() -> None:
    with pytest.raises(InputError, match=r"inverse_batch must lie between 1 / l_i and 1"):
        make(inverse_batch=np.array([0.5, 2.0, 1.0]))


def test_a_round_in_which_nobody_uploads_is_refused() -> None:
    with pytest.raises(InputError, match="uploading"):
        _ = make(uploading=np.zeros(3, np.bool_)).coded_gram


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Rows(np.ones((2, 3)), np.ones((2, 2))), Rows(np.ones((2, 4)), np.ones((2, 2)))),
        (Rows(np.ones((2, 3)), np.ones((2, 2)), weights=np.ones(2)),),
    ],
    ids=["no devices", "unequal width", "weights"],
)
def test_parts_that_are_no_federation_are_refused(parts: tuple[Rows, ...]) -> None:
    with pytest.raises(InputError, match="parts must hold"):
        make(parts=parts)
