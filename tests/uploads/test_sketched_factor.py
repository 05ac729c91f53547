"""CCFL with the factors of noisy coded rows as its curvature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import CurvatureModel, SubspaceSketch
from codedfl.errors import InputError
from codedfl.experiment import run
from codedfl.schemes import ccfl
from codedfl.uploads import CodedFactor, SketchedFactor
from tests.problems import make_federation, make_setting
from tests.support import small_config

FACTOR = ccfl(upload="factor")


def test_every_part_is_charged() -> None:
    setting = make_setting(make_federation(dimension=9), coded_samples=20)
    cost = FACTOR.prepare(setting).upload_cost
    assert cost is not None
    as_scfl = CodedFactor.cost_of(setting, setting.federation.samples.astype(np.float64))
    assert cost.bits.tolist() == as_scfl.bits.tolist()
    assert cost.encoding_macs == pytest.approx(as_scfl.encoding_macs)
    rank = 9
    extra = CurvatureModel.server_macs(4, 9, 2, rank) + 81 * (3 + 20 * rank)
    assert cost.server_macs == pytest.approx(as_scfl.server_macs + extra)


def test_it_is_a_sketch_of_devices_kept_apart_and_depends_on_the_noise() -> None:
    setting = make_setting(make_federation(dimension=9), coded_samples=20)
    sketch = FACTOR.prepare(setting).held
    assert isinstance(sketch, SubspaceSketch)
    assert sketch.rows.tolist() == setting.federation.samples.tolist()
    noisier = replace(setting, code=replace(setting.code, noise_variance=4 * setting.code.noise_variance))
    assert not np.array_equal(sketch.products, FACTOR.prepare(noisier).held.products)
    assert SketchedFactor().depends_on(noisier.code) == noisier.code
    assert not SketchedFactor(noise=False).depends_on(noisier.code).noise_variance.any()


def test_a_device_that_takes_no_part_sends_nothing() -> None:
    setting = make_setting(make_federation(dimension=9), coded_samples=20)
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, True, True])))
    prepared = FACTOR.prepare(some)
    assert prepared.held.rows[1] == 0
    assert not prepared.held.products[1].any()
    assert prepared.upload_cost is not None
    assert prepared.upload_cost.bits[1] == 0


def test_fewer_coded_rows_than_columns_are_refused() -> None:
    with pytest.raises(InputError, match=r"coding\.coded_samples = 10 is below the d \+ o = 11 columns"):
        FACTOR.prepare(make_setting(make_federation(dimension=9), coded_samples=10))


def test_noise_at_which_scfl_diverges_does_not_move_where_it_ends() -> None:
    config = small_config(
        schemes=["scfl", "ccfl"],
        **{
            "options.ccfl.upload": "factor",
            "coding.coded_samples": 200,
            "coding.noise_variance": 20.0,
            "training.rounds": 150,
            "learning_rate.scale": 0.5,
        },
    )
    comparison = run(config)
    assert comparison["scfl"].status == "diverged"
    curve = comparison["ccfl"].curve
    assert comparison["ccfl"].status == "completed"
    assert curve[-1].gap < 0.1 * curve[0].gap
