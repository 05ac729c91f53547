from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from codedfl import typing
from codedfl.data import FeatureMap, MapKind, Scaling, fit_feature_map
from codedfl.errors import InputError
from codedfl.typing import FloatArray


def make_map(p: int = 3, d: int = 5, *, intercept: bool = True) -> FeatureMap:
    rng = np.random.default_rng(0)
    return FeatureMap(
        input_mean=rng.normal(size=p).astype(np.float32),
        input_scale=rng.uniform(0.5, 2, size=p).astype(np.float32),
        frequencies=rng.normal(size=(p, d)).astype(np.float32),
        offsets=rng.uniform(0, 6, size=d).astype(np.float32),
        output_scale=rng.uniform(0.5, 2, size=d).astype(np.float32),
        intercept=intercept,
        input_dimension=p,
    )


def plain_formula(fitted: FeatureMap, raw: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    z = raw.astype(np.float64)
    if fitted.input_mean is not None and fitted.input_scale is not None:
        z = (z - fitted.input_mean) / fitted.input_scale
    if fitted.frequencies is not None and fitted.offsets is not None:
        z = np.sqrt(2 / len(fitted.offsets)) * np.cos(z @ fitted.frequencies + fitted.offsets)
    z = z / fitted.output_scale
    return np.column_stack([z, np.ones(len(z))]) if fitted.intercept else z


NONE: dict[str, Any] = {"frequencies": None, "offsets": None, "output_scale": np.ones(1, np.float32)}


@pytest.mark.parametrize("change", [{}, {"intercept": False}, {"input_mean": None, "input_scale": None}, NONE])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_transform_is_the_plain_formula(
    change: dict[str, Any], dtype: type, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing, "ENTRIES_PER_BLOCK", 20)
    fitted = replace(make_map(), **change)
    raw = np.random.default_rng(1).normal(size=(11, 3)).astype(np.float32)
    features = fitted.transform(raw, dtype)
    assert features.dtype == dtype
    assert features.shape == (11, fitted.dimension)
    assert features.flags.c_contiguous
    np.testing.assert_allclose(features, plain_formula(fitted, raw), atol=tolerance)


def test_chosen_rows_come_in_their_order() -> None:
    fitted = make_map()
    raw = np.random.default_rng(1).normal(size=(11, 3)).astype(np.float32)
    rows = np.array([4, 0, 9])
    np.testing.assert_allclose(fitted.transform(raw, rows=rows), fitted.transform(raw)[rows], rtol=1e-6)


def test_what_cannot_be_transformed_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(2, 4\), but this feature map takes 3 columns"):
        make_map().transform(np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="NaN or infinite"):
        make_map().transform(np.full((2, 3), np.nan, np.float32))
    with pytest.raises(InputError, match="too large for this feature map"):
        make_map().transform(np.full((2, 3), 3e38, np.float32))


@pytest.mark.parametrize("change", [{}, {"input_mean": None, "input_scale": None}, NONE])
def test_a_map_survives_an_npz_file_exactly(change: dict[str, Any]) -> None:
    fitted = replace(make_map(), **change)
    file = io.BytesIO()
    np.savez(file, **fitted.to_arrays())  # type: ignore[arg-type]
    file.seek(0)
    loaded = FeatureMap.from_arrays(dict(np.load(file, allow_pickle=False)))
    raw = np.random.default_rng(1).normal(size=(11, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded.transform(raw), fitted.transform(raw))
    assert loaded.to_arrays().keys() == fitted.to_arrays().keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_scale": None}, "only one of input_mean and input_scale"),
        ({"offsets": None}, "only one of frequencies and offsets"),
        ({"input_mean": np.ones(2, np.float32)}, r"input_mean of the feature map has shape \(2,\) .*of shape \(3,\)"),
        ({"frequencies": np.ones((2, 5), np.float32)}, "frequencies of the feature map has shape"),
        ({"offsets": np.ones((5, 1), np.float32)}, "offsets of the feature map has shape"),
        ({"output_scale": np.ones(4, np.float32)}, "output_scale of the feature map has shape"),
        ({"output_scale": np.zeros(1, np.float32)}, "output_scale of the feature map has values that are not positive"),
        ({"output_scale": np.ones(5, int)}, "dtype int64: give floats"),
        ({"input_mean": np.full(3, np.nan, np.float32)}, "input_mean of the feature map has 3 value"),
        ({"input_dimension": 0}, "input_dimension = 0 must be 1 or more"),
    ],
)
def test_a_map_whose_parts_do_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(make_map(), **change)


def test_a_damaged_saved_map_is_refused() -> None:
    saved = make_map().to_arrays()
    with pytest.raises(InputError, match="the saved feature map has no 'intercept'"):
        FeatureMap.from_arrays({name: array for name, array in saved.items() if name != "intercept"})
    with pytest.raises(InputError, match="'input_dimension' of the saved feature map is not a single integer"):
        FeatureMap.from_arrays(saved | {"input_dimension": np.ones(2)})


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(rows: int = 40, columns: int = 4) -> FloatArray:
    return np.random.default_rng(1).normal(3, 2, size=(rows, columns)).astype(np.float32)


def test_fourier_features_approximate_the_kernel_within_their_standard_error() -> None:
    raw, gamma, d = normal(), 0.05, 4000
    features = fit_feature_map(raw, dimension=d, gamma=gamma, rng=rng()).transform(raw, np.float64)
    distances = ((raw[:, None] - raw[None]).astype(np.float64) ** 2).sum(axis=2)
    error = features @ features.T - np.exp(-gamma * distances)
    # An entry is a mean of d terms 2 cos(.) cos(.) = cos(sum) + cos(difference), of variance at most 1/2 + 1/2, so its
    # standard error is at most 1 / sqrt(d); 5 of them bound 820 entries but for a chance of 5e-4.
    assert np.abs(error).max() < 5 / np.sqrt(d)
    assert np.abs(error.mean()) < 2 / np.sqrt(d)


def test_frequencies_and_offsets_follow_their_laws() -> None:
    fitted = fit_feature_map(normal(), dimension=20_000, gamma=0.3, rng=rng())
    assert fitted.frequencies is not None
    assert fitted.offsets is not None
    # The variance of n normal draws has the relative standard error sqrt(2 / n).
    assert fitted.frequencies.var() == pytest.approx(0.6, rel=5 * np.sqrt(2 / 80_000))
    assert 0 <= fitted.offsets.min() < 0.01
    assert 6.27 < fitted.offsets.max() < 2 * np.pi + 1e-6
    assert fitted.frequencies.dtype == fitted.offsets.dtype == np.float32


@pytest.mark.parametrize("standardize", [False, True])
def test_gamma_scale_is_one_over_the_total_variance(standardize: bool) -> None:
    raw = normal() * np.array([1, 2, 3, 0], dtype=np.float32)
    seen = raw.astype(np.float64)
    if standardize:
        seen = (seen - seen.mean(axis=0)) / np.where(seen.std(axis=0) > 0, seen.std(axis=0), 1)
    by_scale = fit_feature_map(raw, dimension=10, standardize=standardize, rng=rng())
    by_hand = fit_feature_map(raw, dimension=10, standardize=standardize, gamma=1 / (4 * seen.var()), rng=rng())
    assert by_scale.frequencies is not None
    assert by_hand.frequencies is not None
    np.testing.assert_allclose(by_scale.frequencies, by_hand.frequencies, rtol=1e-5)


def test_standardised_inputs_have_mean_zero_and_variance_one_and_constants_only_lose_their_mean() -> None:
    raw = normal()
    raw[:, 2] = 7
    features = fit_feature_map(raw, kind="none", standardize=True, scaling="none", rng=rng()).transform(raw)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(features.var(axis=0), [1, 1, 0, 1], rtol=1e-5)


def test_scalings() -> None:
    raw = np.array([[1, -4, 0], [-2, 2, 0]], dtype=np.float32)

    def largest(kind: MapKind, scaling: Scaling, **options: Any) -> list[float]:
        fitted = fit_feature_map(raw, kind=kind, scaling=scaling, rng=rng(), **options)
        return [float(value) for value in np.abs(fitted.transform(raw)).max(axis=0)]

    assert largest("none", "none") == [2, 4, 0]
    assert largest("none", "global") == [0.5, 1, 0]
    assert largest("none", "column") == largest("none", "auto") == [1, 1, 0]
    assert largest("none", "column", intercept=True) == [1, 1, 0, 1]
    assert max(largest("rff", "global", dimension=6)) == 1
    assert largest("rff", "column", dimension=6) == [1] * 6
    assert largest("rff", "auto", dimension=6) == largest("rff", "none", dimension=6)
    assert largest("rff", "auto", dimension=1) == [1]


def test_the_same_randomness_gives_the_same_map() -> None:
    one, two = (fit_feature_map(normal(), dimension=5, rng=rng()) for _ in range(2))
    np.testing.assert_array_equal(one.transform(normal()), two.transform(normal()))
    assert one.dimension == 5


@pytest.mark.slow
@given(
    raw=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(-1, 1, width=32) | st.floats(width=32),
    ),
    kind=st.sampled_from(["rff", "none"]),
    scaling=st.sampled_from(["auto", "global", "column"]),
    standardize=st.booleans(),
)
def test_training_features_are_within_one_or_the_inputs_are_refused(
    raw: FloatArray, kind: MapKind, scaling: Scaling, standardize: bool
) -> None:
    try:
        fitted = fit_feature_map(raw, kind=kind, dimension=3, scaling=scaling, standardize=standardize, rng=rng())
        features = fitted.transform(raw)
    except InputError:
        return
    assert np.abs(features).max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "poly"}, "the feature map 'poly' is unknown"),
        ({"scaling": "row"}, "scaling = 'row' is unknown"),
        ({"gamma": "auto"}, "gamma = 'auto' is unknown: use a positive number or 'scale'"),
        ({"gamma": 0.0}, "gamma = 0.0 must be a positive finite number"),
        ({"gamma": 1e300}, r"gamma = 1e\+300 is too large for float32 features"),
        ({"dimension": 0}, "dimension = 0 must be 1 or more"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_feature_map(normal(), rng=rng(), **options)


def test_inputs_that_are_no_matrix_are_refused() -> None:
    with pytest.raises(InputError, match=r"the raw inputs has shape \(3,\)"):
        fit_feature_map(np.ones(3, np.float32), rng=rng())
    with pytest.raises(InputError, match=r"shape \(0, 3\)"):
        fit_feature_map(np.ones((0, 3), np.float32), rng=rng())


def test_means_in_double_precision_keep_the_digits_in_which_rows_differ() -> None:
    seconds = np.arange(100.0)[:, None]
    stamps = 1.7e9 + seconds
    fitted = fit_feature_map(stamps, kind="none", standardize=True, scaling="none", rng=rng())
    expected = (seconds - seconds.mean()) / seconds.std()
    np.testing.assert_allclose(fitted.transform(stamps), expected, rtol=1e-6)
    # Inputs that were rounded already give what float32 minus float64 gives, bit for bit.
    rounded = stamps.astype(np.float32)
    assert fitted.input_mean is not None
    assert fitted.input_scale is not None
    by_hand = ((rounded - fitted.input_mean) / fitted.input_scale).astype(np.float32)
    assert np.array_equal(fitted.transform(rounded), by_hand)


def test_a_map_that_was_fitted_in_single_precision_rounds_its_inputs_as_in_training() -> None:
    raw = 1e6 + rng().normal(size=(40, 3))
    fitted = fit_feature_map(raw.astype(np.float32), kind="none", standardize=True, rng=rng())
    assert fitted.input_mean is not None
    assert fitted.input_mean.dtype == np.float32
    assert np.array_equal(fitted.transform(raw), fitted.transform(raw.astype(np.float32)))
