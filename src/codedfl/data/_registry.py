"""The datasets that are known by name: where they are looked for, what they consist of, how they are loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codedfl.data._builtin import DIGITS, GARMENTS, load_cifar10_vgg, load_digits, load_idx_images
from codedfl.data._dataset import Dataset
from codedfl.errors import InputError

DATA_VARIABLE = "CODEDFL_DATA"
EMBEDDED = "embedded"

Files = dict[str, Path]


@dataclass(frozen=True)
class NamedDataset:
    """An entry of the registry.

    Args:
        description: one line for lists.
        source: where to get the files, in words; empty when none are needed.
        load: from the files found, the test fraction and randomness to the dataset.
        files: names of the files, all of them needed.
        endings: what may follow the name of a file, in order of preference.
    """

    description: str
    source: str
    load: Callable[[Files, float, np.random.Generator], Dataset]
    files: tuple[str, ...] = ()
    endings: tuple[str, ...] = ("",)

    def find(self, folder: Path) -> Files:
        """Return the files that are in the folder, by name."""
        candidates = ((name, folder / (name + ending)) for name in self.files for ending in reversed(self.endings))
        return {name: path for name, path in candidates if path.is_file()}


@dataclass(frozen=True)
class DatasetStatus:
    """Whether a dataset can be loaded, and if not, what to do.

    Args:
        name: name to load it by.
        description: one line on what it is.
        available: whether all its files are there.
        location: the folder looked in, or "embedded" when it needs no files.
        files: the files it consists of.
        hint: how to get it; empty when it is available.
    """

    name: str
    description: str
    available: bool
    location: str
    files: tuple[str, ...]
    hint: str


_IDX_FILES = tuple(
    f"{part}-{content}" for part in ("train", "t10k") for content in ("images-idx3-ubyte", "labels-idx1-ubyte")
)

REGISTRY: dict[str, NamedDataset] = {
    "digits": NamedDataset(
        description="1,797 handwritten digits of 8x8 pixels, 10 classes",
        source="",
        load=lambda _, test_fraction, rng: load_digits(test_fraction, rng),
    ),
    "mnist": NamedDataset(
        description="70,000 handwritten digits of 28x28 pixels, 10 classes",
        source="the four IDX files of the MNIST database, from its home page or a mirror",
        load=lambda files, *_: load_idx_images("mnist", files, DIGITS),
        files=_IDX_FILES,
        endings=("", ".gz"),
    ),
    "fashion-mnist": NamedDataset(
        description="70,000 pictures of garments of 28x28 pixels, 10 classes",
        source="the four IDX files of the zalandoresearch/fashion-mnist repository on GitHub",
        load=lambda files, *_: load_idx_images("fashion-mnist", files, GARMENTS),
        files=_IDX_FILES,
        endings=("", ".gz"),
    ),
    "cifar10-vgg": NamedDataset(
        description="60,000 CIFAR-10 pictures as 4,096 quantised VGG16 features, 10 classes",
        source="the four .npz files of quantised VGG16 features that accompany this project's experiments",
        load=lambda files, *_: load_cifar10_vgg(files),
        files=("scale.npz", "train-1.npz", "train-2.npz", "test.npz"),
    ),
}


def load_named(name: str, data_dir: Path | None, test_fraction: float, rng: np.random.Generator) -> Dataset:
    """Load a registered dataset, or say which of its files are missing and how to get them."""
    entry = REGISTRY[name]
    folder = dataset_folder(name, data_dir)
    files = entry.find(folder)
    missing = [file for file in entry.files if file not in files]
    if missing:
        raise InputError(
            f"data.dataset = {name!r} needs the file(s) {', '.join(missing)}, which are not in {str(folder)!r}: "
            f"{_hint(name, entry)}."
        )
    return entry.load(files, test_fraction, rng)


def list_datasets(data_dir: Path | None = None) -> tuple[DatasetStatus, ...]:
    """Return the status of every registered dataset.

    Example:
        >>> [(status.name, status.location) for status in list_datasets() if not status.files]
        [('digits', 'embedded')]
    """
    return tuple(_status(name, entry, data_dir) for name, entry in REGISTRY.items())


def dataset_folder(name: str, data_dir: Path | None) -> Path:
    """Return the folder that is to hold a dataset.

    It is the sub-folder with the dataset's name of ``data_dir``, else of the environment variable ``CODEDFL_DATA``, else
    of ``data`` in the current directory; or that directory itself when it already has the dataset's name.

    Example:
        >>> dataset_folder("mnist", Path("/store")).as_posix(), dataset_folder("mnist", Path("/a/mnist")).as_posix()
        ('/store/mnist', '/a/mnist')
    """
    root = data_dir if data_dir is not None else Path(os.environ.get(DATA_VARIABLE) or "data")
    return root if root.absolute().name == name else root / name


def _status(name: str, entry: NamedDataset, data_dir: Path | None) -> DatasetStatus:
    folder = dataset_folder(name, data_dir)
    available = len(entry.find(folder)) == len(entry.files)
    return DatasetStatus(
        name=name,
        description=entry.description,
        available=available,
        location=str(folder) if entry.files else EMBEDDED,
        files=entry.files,
        hint="" if available else _hint(name, entry),
    )


def _hint(name: str, entry: NamedDataset) -> str:
    return (
        f"get {entry.source}, put them in a folder called {name}, and set data.data_dir (--data-dir) or {DATA_VARIABLE} "
        "to the folder that holds it"
    )
