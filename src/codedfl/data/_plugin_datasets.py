"""Datasets that other packages offer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from codedfl.data._dataset import Dataset
from codedfl.plugins import Plugin


def load_plugin(plugin: Plugin, folder: Path, test_fraction: float, rng: np.random.Generator) -> Dataset:
    """Load a dataset by calling ``function(folder, test_fraction, rng)`` of a plug-in.

    Args:
        plugin: the plug-in.
        folder: where files of the dataset would be, whether or not it exists.
        test_fraction: share of the rows to test on, for data without test rows of its own.
        rng: source of a random split.

    Raises:
        InputError: the plug-in is broken, or refuses its arguments.
    """
    dataset: Dataset = plugin.call(plugin.load(), Dataset, folder, test_fraction, rng)
    return dataset


def description_of(plugin: Plugin) -> str:
    """Return the first line of what the function of a plug-in says about itself.

    Raises:
        InputError: it cannot be loaded.
    """
    lines = (plugin.load().__doc__ or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else "no description"
