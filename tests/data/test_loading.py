from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.data import load_dataset
from codedfl.errors import InputError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_same_randomness_gives_the_same_split() -> None:
    one, two = load_dataset("digits", rng=rng()), load_dataset("digits", rng=rng())
    np.testing.assert_array_equal(one.features, two.features)


def test_a_file_is_loaded_by_its_path_and_a_single_name_may_be_a_string(tmp_path: Path) -> None:
    path = tmp_path / "Homes.CSV"
    path.write_text("id,price,size\n" + "".join(f"{row},{row + 1},{row + 2}\n" for row in range(10)))
    data = load_dataset(str(path), target="price", drop="id", test_fraction=0.3, rng=rng())
    assert (data.task, data.feature_names, data.target_names) == ("regression", ("size",), ("price",))
    assert (len(data.features), len(data.test_features)) == (7, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "mnits",
            r"'mnits' is neither a known dataset \(digits, mnist, fashion-mnist, cifar10-vgg\) .*Did you mean 'mnist'\?",
        ),
        ("file.xlsx", r"nor a path that ends in \.csv, \.npz, \.parquet\.$"),
        ("absent.csv", r"data\.dataset = 'absent\.csv' is not a file"),
        ("", "data.dataset = '' is neither"),
    ],
)
def test_an_unknown_source_is_refused(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(source, target=["y"], rng=rng())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": ["y"]}, r"data\.target = \['y'\] applies to a file, not to data\.dataset = 'digits'"),
        ({"device_column": "d"}, r"data\.device_column = 'd' applies to a file"),
        ({"drop": ["d"]}, r"data\.drop = \['d'\] applies to a file"),
        ({"test_file": "t.csv"}, r"data\.test_file = 't\.csv' applies to a file"),
        ({"task": "regression"}, r"data\.task = 'regression' does not fit data\.dataset = 'digits'"),
        ({"test_fraction": 1.0}, r"data\.test_fraction = 1\.0 must be"),
    ],
)
def test_options_of_files_are_refused_for_a_named_dataset(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset("digits", rng=rng(), **options)
