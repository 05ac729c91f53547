"""Named datasets: their files, where to find them, and how to read them."""

from __future__ import annotations

import gzip
import math
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl.data._dataset import Dataset, one_hot
from codedfl.data._partition import split_rows
from codedfl.errors import InputError
from codedfl.files import Arrays, read_npz, refusing_damage
from codedfl.plugins import Plugin, find_plugin, plugin_names, plugins
from codedfl.typing import FloatArray, row_blocks

Labels = npt.NDArray[np.integer[Any]]
Codes = npt.NDArray[np.uint8]

DIGITS = tuple("0123456789")
GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

DATA_VARIABLE = "CODEDFL_DATA"
EMBEDDED = "embedded"

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08

Files = dict[str, Path]
Rows = tuple[FloatArray, FloatArray]
"""Inputs, and one-hot classes."""


@dataclass(frozen=True)
class NamedDataset:
    """An entry of the registry.

    Args:
        description: one line for lists.
        source: where to get the files, in words; empty when none are needed.
        load: builds the dataset from the files found, the test fraction and a random generator.
        files: names of the files, all required.
        endings: possible endings of a file's name, in order of preference.
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
        name: name under which it is loaded.
        description: one line on what it is.
        available: whether all its files are present.
        location: the folder searched, or "embedded" if it needs no files.
        files: the files it consists of.
        hint: how to get it; empty when it is available.
        package: the package of a plug-in; empty for a dataset that is built in.
    """

    name: str
    description: str
    available: bool
    location: str
    files: tuple[str, ...]
    hint: str
    package: str = ""


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


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets: those built in, and those of plug-ins."""
    return (*REGISTRY, *plugin_names("dataset", REGISTRY))


def is_plugin_dataset(name: str) -> bool:
    """Return whether a source is a dataset of a plug-in."""
    return name not in REGISTRY and name in dataset_names()


def load_named(name: str, data_dir: Path | None, test_fraction: float, rng: np.random.Generator) -> Dataset:
    """Load a registered dataset, or say which of its files are missing and how to get them.

    A plug-in is called as ``function(folder, test_fraction, rng)``, whether or not the folder exists.
    """
    folder = dataset_folder(name, data_dir)
    if name not in REGISTRY and (plugin := find_plugin("dataset", name)) is not None:
        loaded: Dataset = plugin.call(plugin.load(), Dataset, folder, test_fraction, rng)
        return loaded
    entry = REGISTRY[name]
    files = entry.find(folder)
    missing = [file for file in entry.files if file not in files]
    if missing:
        raise InputError(
            f"data.dataset = {shown(name)} needs the file(s) {', '.join(missing)}, which are not in {shown(folder)}: "
            f"{_hint(name, entry)}."
        )
    return entry.load(files, test_fraction, rng)


def list_datasets(data_dir: Path | None = None) -> tuple[DatasetStatus, ...]:
    """Return the status of every dataset that is built in or that a plug-in offers.

    Example:
        >>> [(status.name, status.location) for status in list_datasets() if not status.files]
        [('digits', 'embedded')]
    """
    own = (_status(name, entry, data_dir) for name, entry in REGISTRY.items())
    return (*own, *(_plugin_status(plugin) for plugin in plugins("dataset", REGISTRY)))


def dataset_folder(name: str, data_dir: Path | None) -> Path:
    """Return the folder in which a dataset is expected.

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


def _plugin_status(plugin: Plugin) -> DatasetStatus:
    description, problem = "", f"the dataset {plugin.problem}" if plugin.problem else ""
    if not problem:
        try:
            lines = (plugin.load().__doc__ or "").strip().splitlines()
            description = lines[0].rstrip(".") if lines else "no description"
        except InputError as error:
            problem = str(error).removesuffix(".")
    return DatasetStatus(plugin.name, description, not problem, "plug-in", (), problem, plugin.package)


def _hint(name: str, entry: NamedDataset) -> str:
    return (
        f"get {entry.source}, put them in a folder called {name}, and set data.data_dir or {DATA_VARIABLE} "
        "to the folder that holds it"
    )


def load_digits(test_fraction: float, rng: np.random.Generator) -> Dataset:
    """Return the 8x8 digits that come with scikit-learn, split at random with every class in both parts."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    features = (bunch.data / 16).astype(np.float32)
    targets = one_hot(bunch.target, len(DIGITS))
    train, test = split_rows(len(features), test_fraction, bunch.target, rng)
    parts = (features[train], targets[train]), (features[test], targets[test])
    return _classification("digits", *parts, DIGITS, bunch.feature_names)


def load_idx_images(name: str, files: Files, classes: tuple[str, ...]) -> Dataset:
    """Return the images of four IDX files, with pixels in [0, 1].

    Args:
        name: name of the dataset.
        files: where the files are, by their standard names.
        classes: names of the classes.
    """
    training, shape = _images_and_labels(files, "train", classes)
    test, test_shape = _images_and_labels(files, "t10k", classes)
    if shape != test_shape:
        raise InputError(
            f"the training images of {name} are {shape} pixels but its test images {test_shape}: download them again."
        )
    pixels = (f"pixel_{row}_{column}" for row in range(shape[0]) for column in range(shape[1]))
    return _classification(name, training, test, classes, pixels)


def _images_and_labels(files: Files, part: str, classes: tuple[str, ...]) -> tuple[Rows, tuple[int, int]]:
    images_path, labels_path = files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    _, height, width = images.shape
    pixels = images.reshape(len(images), height * width) / np.float32(255)
    return (pixels, _one_hot_of_file(labels, len(images), labels_path, classes)), (height, width)


def load_cifar10_vgg(files: Files) -> Dataset:
    """Return CIFAR-10 as 4,096 quantised VGG16 features: x_j = code_values[code_j] feature_scale_j."""
    scale = read_npz(files["scale.npz"], required=("code_values", "feature_scale"))
    training = decode_vgg([files["train-1.npz"], files["train-2.npz"]], scale)
    test = decode_vgg([files["test.npz"]], scale)
    columns = (f"vgg_{column}" for column in range(training[0].shape[1]))
    return _classification("cifar10-vgg", training, test, CIFAR10, columns)


def _classification(name: str, training: Rows, test: Rows, classes: tuple[str, ...], columns: Iterable[str]) -> Dataset:
    return Dataset(name, "classification", *training, *test, classes, tuple(columns))


def decode_vgg(paths: list[Path], scale: Arrays) -> Rows:
    """Decode the rows of quantised files, one after the other, into one float32 matrix and their one-hot classes."""
    code_values = scale["code_values"].astype(np.float32, copy=False)
    feature_scale = scale["feature_scale"].astype(np.float32, copy=False)
    parts = [_read_codes(path, code_values, feature_scale) for path in paths]
    features = np.empty((sum(len(codes) for codes, _ in parts), len(feature_scale)), dtype=np.float32)
    start = 0
    for codes, _ in parts:
        rows = features[start : start + len(codes)]
        for block in row_blocks(*rows.shape):
            # The codes are already checked: "clip" only avoids the copy that "raise" makes.
            np.take(code_values, codes[block], out=rows[block], mode="clip")
            rows[block] *= feature_scale
        start += len(codes)
    return features, np.concatenate([targets for _, targets in parts])


def _read_codes(path: Path, code_values: FloatArray, feature_scale: FloatArray) -> tuple[Codes, FloatArray]:
    arrays = read_npz(path, required=("features", "labels"))
    codes, labels = arrays["features"], arrays["labels"]
    shapes_fit = code_values.ndim == feature_scale.ndim == 1 and codes.shape[1:] == feature_scale.shape
    if not shapes_fit or codes.dtype != np.uint8 or codes.size == 0 or codes.max() >= len(code_values):
        raise InputError(
            f"the array 'features' of {shown(path)} does not fit the code table in scale.npz: download both again."
        )
    return codes, _one_hot_of_file(labels, len(codes), path, CIFAR10)


def _one_hot_of_file(labels: Labels, rows: int, path: Path, classes: tuple[str, ...]) -> FloatArray:
    if labels.shape != (rows,) or labels.dtype != np.uint8 or (labels >= len(classes)).any():
        raise InputError(
            f"{shown(path)} must hold a label from 0 to {len(classes) - 1} for each of {rows} rows: download it again."
        )
    return one_hot(labels, len(classes))


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an array of bytes from an IDX file, gzipped or not.

    The file starts with the bytes 0, 0, 8 (unsigned bytes) and the number of dimensions, then each dimension as a
    big-endian 32-bit integer, then the entries in row-major order.

    Args:
        path: the file; gzip is recognised from the content.
        dimensions: required number of dimensions: 3 for images, 1 for labels.

    Raises:
        InputError: the file is of another kind, truncated, or too long.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        ...     read_idx(path, dimensions=1)
        array([7, 9], dtype=uint8)
    """
    with refusing_damage(path, "an IDX file"):
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
    magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise InputError(
            f"{shown(path)} starts with the bytes {content[:4].hex(' ') or 'of an empty file'} instead of "
            f"{magic.hex(' ')}: replace it with an IDX file of {dimensions}-dimensional bytes."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise InputError(f"{shown(path)} is truncated within its header: download it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    promised, actual = math.prod(shape), len(content) - header
    if promised != actual:
        fault = "is truncated" if actual < promised else "is too long"
        raise InputError(
            f"{shown(path)} {fault}: its header promises {promised} bytes and {actual} follow, so download it again."
        )
    if promised == 0:
        raise InputError(f"{shown(path)} has no entries: download it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
