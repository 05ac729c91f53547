"""Data larger than memory: a federation in a folder of ``.npy`` files, which are mapped and never read as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from codedfl._messages import did_you_mean, listing, shown
from codedfl.data._dataset import Task, require_same_rows, require_targets
from codedfl.data._federation import Federation
from codedfl.data._registry import dataset_names
from codedfl.errors import InputError
from codedfl.files import open_atomically, refusing_damage, write_atomically
from codedfl.typing import FloatArray, IntArray, row_blocks

MATRICES = ("features", "labels", "test_features", "test_labels")
OFFSETS = "offsets.npy"
ABOUT = "federation.json"
FILES = (*(f"{name}.npy" for name in MATRICES), OFFSETS, ABOUT)
KEYS = ("task", "target_names", "device_names")
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def is_federation_folder(source: str) -> bool:
    """Tell whether a source is a folder rather than a file or a dataset name; names take precedence."""
    # Path.is_dir raises on names that are too long for the system, and takes "" for the current directory.
    return os.path.isdir(source) and source not in dataset_names()  # noqa: PTH112


def open_federation(folder: Path | str) -> Federation:
    """Open a federation whose rows stay on disk until they are needed.

    The folder holds ``features.npy`` (m, d) and ``labels.npy`` (m, o), the rows ordered by device; ``offsets.npy`` (N + 1,),
    the first row of each device, followed by m; ``test_features.npy`` and ``test_labels.npy``; and ``federation.json``
    with the keys ``task`` ("classification" or "regression") and, optionally, ``target_names`` and ``device_names``.
    All four matrices are in C order and of one type, float32 or float64; offsets are int64. Features are used
    unchanged.

    Every value is read once, a few rows at a time, to refuse NaN and infinity. The files must not change while they are
    in use.

    Args:
        folder: the folder with the files.

    Returns:
        A federation of read-only ``numpy.memmap`` arrays.

    Raises:
        InputError: a file is missing, damaged or does not fit the others; the message says which, and what to do.

    Example:
        >>> import tempfile
        >>> X, Y = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((3, 1), np.float32)
        >>> data = Federation(X, Y, np.array([0, 1, 3]), X, Y, "regression", ("y",), ("a", "b"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_federation(data, folder)
        ...     opened = open_federation(folder)
        ...     opened.mapped, opened.device(1)[0].tolist()
        (True, [[2.0, 3.0], [4.0, 5.0]])
    """
    folder = Path(folder)
    for file in FILES:
        if not (folder / file).is_file():
            raise InputError(
                f"the federation folder {shown(folder)} has no file {shown(file)}: add it, or check the path."
            )
    matrices = {name: _map_matrix(folder / f"{name}.npy") for name in MATRICES}
    _require_fit(folder, matrices)
    offsets = _read_offsets(folder / OFFSETS, len(matrices["features"]))
    task, targets, devices = _read_about(folder / ABOUT, matrices["labels"].shape[1], len(offsets) - 1)
    federation = Federation(**matrices, offsets=offsets, task=task, target_names=targets, device_names=devices)
    for name in ("labels", "test_labels"):
        require_targets(shown(folder / f"{name}.npy"), matrices[name], task)
    features = matrices["features"]
    if not any(features[block].any() for block in row_blocks(*features.shape)):
        raise InputError(
            f"{shown(folder / 'features.npy')} holds nothing but zeros: there is nothing to learn from them."
        )
    return federation


def save_federation(federation: Federation, folder: Path | str) -> None:
    """Write a federation to a folder that `open_federation` opens, a few rows at a time.

    ``federation.json`` is written last, so that an unfinished folder is not mistaken for a federation.

    Args:
        federation: the data, in memory or mapped, all of it float32 or all of it float64.
        folder: where to write; created if missing, otherwise empty.

    Raises:
        InputError: the folder is not empty or cannot be written, or the types of the arrays differ.
    """
    folder = Path(folder)
    matrices = {name: getattr(federation, name) for name in MATRICES}
    types = {name: values.dtype for name, values in matrices.items()}
    if len({*types.values()}) > 1 or types["features"] not in DTYPES:
        dtypes = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
        raise InputError(f"the federation has {dtypes}: make all of them float32 or all of them float64.")
    about = {"task": federation.task, "target_names": federation.target_names, "device_names": federation.device_names}
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{shown(folder)} exists and is not an empty folder: give another one.")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for name, values in matrices.items():
                _write_npy(folder / f"{name}.npy", values)
            _write_npy(folder / OFFSETS, federation.offsets.astype(np.int64))
            write_atomically(folder / ABOUT, json.dumps(about, indent=2))
        except BaseException:
            for file in FILES:
                (folder / file).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be written ({error.strerror}): give another folder.") from error


def _map(path: Path) -> npt.NDArray[Any]:
    # Not numpy.load, which treats any file that is not .npy as a pickle or an archive.
    with refusing_damage(path, "an .npy file"):
        return np.lib.format.open_memmap(path, mode="r")


def _map_matrix(path: Path) -> FloatArray:
    values = _map(path)
    if values.ndim != 2 or values.size == 0:
        raise InputError(
            f"{shown(path)} has shape {values.shape}: give a two-dimensional array with a row for each sample."
        )
    if values.dtype not in DTYPES:
        raise InputError(f"{shown(path)} has dtype {values.dtype.str}: save it as float32 or float64.")
    if not values.flags.c_contiguous:
        raise InputError(f"{shown(path)} is in Fortran order: save it in C order, row after row.")
    return values


def _require_fit(folder: Path, matrices: dict[str, FloatArray]) -> None:
    files = {name: repr(str(folder / f"{name}.npy")) for name in MATRICES}
    features = matrices["features"]
    for name, values in matrices.items():
        if values.dtype != features.dtype:
            raise InputError(
                f"{files[name]} has dtype {values.dtype} but {files['features']} has {features.dtype}: save both alike."
            )
    for name, other in (("features", "labels"), ("test_features", "test_labels")):
        require_same_rows(files[name], matrices[name], files[other], matrices[other])
    for name, test in (("features", "test_features"), ("labels", "test_labels")):
        columns, tests = matrices[name].shape[1], matrices[test].shape[1]
        if columns != tests:
            raise InputError(f"{files[name]} has {columns} columns but {files[test]} has {tests}: give both the same.")


def _read_offsets(path: Path, rows: int) -> IntArray:
    offsets = _map(path)
    if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) < 2:
        raise InputError(
            f"{shown(path)} has shape {offsets.shape} and dtype {offsets.dtype.str}: give a one-dimensional int64 array, one "
            "longer than there are devices."
        )
    if offsets[0] != 0 or offsets[-1] != rows:
        raise InputError(
            f"{shown(path)} runs from {offsets[0]} to {offsets[-1]}: it must run from 0 to the {rows} rows of features.npy."
        )
    falls = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if falls.size:
        first = int(falls[0])
        raise InputError(
            f"{shown(path)} goes from {offsets[first]} to {offsets[first + 1]} at index {first + 1}: it must increase, as every "
            "device has a row at least."
        )
    return np.array(offsets)


def _read_about(path: Path, outputs: int, devices: int) -> tuple[Task, tuple[str, ...], tuple[str, ...]]:
    with refusing_damage(path, "a JSON file"):
        about = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict):
        raise InputError(f"{shown(path)} holds no JSON object: give one with the key 'task'.")
    for key in about:
        if key not in KEYS:
            raise InputError(
                f"{shown(path)} has a key {shown(key)} but only {listing(KEYS)} are known: remove it.{did_you_mean(key, KEYS)}"
            )
    task = about.get("task")
    if task not in get_args(Task):
        raise InputError(f"task = {shown(task)} in {shown(path)} must be 'classification' or 'regression'.")
    if task == "classification" and outputs < 2:
        raise InputError(
            f"task = 'classification' in {shown(path)} does not fit the single column of labels.npy: give one for each class."
        )
    targets = [str(j) for j in range(outputs)]
    if task == "regression":
        targets = ["y"] if outputs == 1 else [f"y_{j}" for j in range(outputs)]
    return (
        cast(Task, task),
        _names(path, "target_names", about.get("target_names", targets), outputs, "column of labels.npy"),
        _names(
            path,
            "device_names",
            about.get("device_names", [f"device-{i + 1}" for i in range(devices)]),
            devices,
            "device of offsets.npy",
        ),
    )


def _names(path: Path, key: str, names: Any, count: int, what: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{key} in {shown(path)} is no list of names: give a list of strings, or leave it out.")
    if len(names) != count or len(set(names)) != count:
        raise InputError(
            f"{key} in {shown(path)} has {len(set(names))} different name(s): give {count}, one for each {what}."
        )
    return tuple(names)


def _write_npy(path: Path, values: npt.NDArray[Any]) -> None:
    """Write an array block by block.

    The file is written, not mapped: on a full disk a write raises an error, whereas a mapping kills the process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": values.shape}
    with open_atomically(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in row_blocks(len(values), _width(values.shape)):
            file.write(np.ascontiguousarray(values[block]).data)


def _width(shape: Sequence[int]) -> int:
    return shape[1] if len(shape) > 1 else 1
