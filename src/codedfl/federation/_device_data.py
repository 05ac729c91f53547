"""A device's own table as the rows that the federation prescribes, mapped once and then read from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, listing, shown
from codedfl._version import __version__
from codedfl.coding import Rows
from codedfl.data import (
    Columns,
    Table,
    TargetEncoding,
    is_file_name,
    read_frame,
    read_npz_tables,
    require_targets,
    table_columns,
)
from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig, FederationData
from codedfl.federation._vault import open_privately, refusing_failure
from codedfl.files import make_private_folder, read_npz, require_file
from codedfl.identity import identity
from codedfl.typing import FloatArray, row_blocks


def load_rows(path: str | Path, federation: FederationConfig, cache: str | Path | None = None) -> Rows:
    r"""Read a device's own table, and map it as the federation prescribes.

    The table may have more columns than the federation names, in any order. In an .npz file the inputs are the columns of the
    array ``X``, named ``x0``, ``x1`` and so on unless the file names them in an array ``columns``; every target is an array.

    Args:
        path: a .csv, .parquet or .npz file.
        federation: what all devices agreed on.
        cache: folder for the mapped rows, which are private data. They are used as long as table and prescription stay the same,
            mapped from disk instead of read, and replaced otherwise. None to map the table anew, in memory.

    Returns:
        Features (l, d) and labels (l, o), float32.

    Raises:
        InputError: the file cannot be read, or is not what the federation prescribes.

    Example:
        >>> import tempfile
        >>> from codedfl.federation._config_files import parse_federation
        >>> data = {"columns": ["dose"], "target": ["ill"], "task": "classification", "classes": ["no", "yes"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "ward.csv"
        ...     _ = file.write_text("patient,ill,dose\nAnn,no,0.5\nBob,yes,2\n")
        ...     rows = load_rows(file, parse_federation({"devices": ["ward"], "data": data}))
        >>> rows.features.tolist(), rows.labels.tolist()
        ([[0.5, 1.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    """
    path = Path(path)
    if not is_file_name(path.name):
        raise InputError(f"data = {shown(path)} is no table: give a file that ends in .csv, .tsv, .npz or .parquet.")
    require_file("data", path)
    if cache is None:
        table, labels = _read(path, federation)
        return Rows(federation.map().transform(table), labels)
    folder, before = Path(cache), _fingerprint(path)
    with refusing_failure(folder):
        make_private_folder(folder)
    prescribed = federation.data, federation.features, federation.privacy.label_center
    key = identity((__version__, *prescribed, before))[:32]
    files = folder / f"rows-{key}-features.npy", folder / f"rows-{key}-labels.npy"
    cached = _open_cache(files, federation)
    if cached is not None:
        return cached
    table, labels = _read(path, federation)
    if _fingerprint(path) != before:
        raise InputError(f"data = {shown(path)} changed while it was read: start again once it is complete.")
    _write_cache(files, table, labels, federation)
    for old in folder.glob("rows-*.npy"):
        if old not in files:
            old.unlink(missing_ok=True)
    return _open_cache(files, federation) or Rows(federation.map().transform(table), labels)


def _fingerprint(path: Path) -> tuple[int, int, str]:
    """Return the size, the time of the last change and the digest of a file."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    status = path.stat()
    return status.st_size, status.st_mtime_ns, digest


def _read(path: Path, federation: FederationConfig) -> tuple[FloatArray, FloatArray]:
    """Return the raw inputs in the prescribed order, and the labels less what is typical of them."""
    data = federation.data
    if path.suffix.lower() == ".npz":
        table = _read_arrays(path, data)
    else:
        names = table_columns(path)
        _require_columns(path, "data.columns", data.columns, names)
        _require_columns(path, "data.target", data.target, names)
        others = tuple(name for name in names if name not in (*data.columns, *data.target))
        try:
            # What applies to test rows applies here: columns that are dropped may be missing, such as pandas' own index.
            table = read_frame(path, Columns(data.target, drop=others), for_test=True)
        except InputError as error:
            raise InputError(str(error).replace(", or leave it out with data.drop", "")) from error
    labels = _labels(table, data)
    return table.with_features(data.columns), labels - labels.dtype.type(federation.privacy.label_center)


def _read_arrays(path: Path, data: FederationData) -> Table:
    tables = [read_npz_tables(path, Columns((target,)), for_test=True)[0] for target in data.target]
    table = replace(tables[0], targets=pd.concat([each.targets for each in tables], axis=1))
    if table.targets.shape[1] != len(data.target):
        raise InputError(
            f"the array(s) {listing(data.target)} of {shown(path)} have {table.targets.shape[1]} columns, but data.target of "
            f"federation.toml names {len(data.target)}: give one array with one column for each."
        )
    inputs = table.features.shape[1]
    given = read_npz(path, (), ("columns",)).get("columns")
    names = table.feature_names
    if given is not None:
        if given.shape != (inputs,) or given.dtype.kind != "U":
            raise InputError(
                f"the array 'columns' of {shown(path)} has shape {given.shape} and dtype {given.dtype}: give the names of the "
                f"{inputs} column(s) of X, as text."
            )
        names = tuple(given.tolist())
        if len(set(names)) < inputs:
            raise InputError(f"the array 'columns' of {shown(path)} repeats a name: give each column of X its own.")
    hint = " of X, or name the columns of X in an array 'columns'" if given is None else " of X"
    _require_columns(path, "data.columns", data.columns, names, hint)
    position = {name: column for column, name in enumerate(names)}
    chosen = table.features
    if names != data.columns:
        chosen = np.ascontiguousarray(table.features[:, [position[name] for name in data.columns]])
    return replace(table, features=chosen, feature_names=data.columns)


def _require_columns(path: Path, field: str, wanted: Sequence[str], names: Sequence[str], hint: str = "") -> None:
    for name in wanted:
        if name not in names:
            raise InputError(
                f"{shown(path)} has no column {shown(name)}, which {field} of federation.toml names, only {listing(names)}: add "
                f"that column{hint}.{did_you_mean(name, names)}"
            )


def _labels(table: Table, data: FederationData) -> FloatArray:
    if data.task == "classification":
        column = table.targets.iloc[:, 0]
        unknown = sorted({_class_name(value) for value in column.unique()} - set(data.classes))
        if unknown:
            raise InputError(
                f"the target {shown(data.target[0])} of {shown(table.path)} has the class(es) {listing(unknown)}, which "
                f"data.classes of federation.toml does not name: remove their rows, or agree on classes that have them."
            )
    labels = TargetEncoding(data.task, data.classes or data.target).encode(table.targets, table.path)
    require_targets(f"the target of {shown(table.path)}", labels, data.task)
    return labels


def _class_name(value: Any) -> str:
    """Return a class as it is named in the federation: a whole number without a point."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _write_cache(files: tuple[Path, Path], table: FloatArray, labels: FloatArray, federation: FederationConfig) -> None:
    """Write the mapped rows block by block, so that they are never in memory as a whole."""
    mapping = federation.map()
    for path, width in zip(files, (mapping.dimension, labels.shape[1]), strict=True):
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(table), width)}
        with open_privately(path) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in row_blocks(len(table), max(mapping.dimension, table.shape[1])):
                part = mapping.transform(table[block]) if path == files[0] else labels[block]
                file.write(np.ascontiguousarray(part, dtype="<f4").data)


def _open_cache(files: tuple[Path, Path], federation: FederationConfig) -> Rows | None:
    """Map the rows from disk; None if they are not there or not whole."""
    try:
        features, labels = (np.lib.format.open_memmap(path, mode="r") for path in files)
    except (OSError, ValueError):
        return None
    shapes = (len(features), federation.dimension), (len(features), federation.outputs)
    fits = (features.shape, labels.shape) == shapes and features.dtype == labels.dtype == np.float32
    return Rows(features, labels) if fits else None
