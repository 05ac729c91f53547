from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from codedfl.data import FeatureMap, _blocks
from codedfl.errors import InputError


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
    monkeypatch.setattr(_blocks, "ENTRIES_PER_BLOCK", 20)
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
