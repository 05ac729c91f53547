"""The set-up of a federation: a folder for the server, and one to carry to each device."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl._messages import did_you_mean, listing, shown
from codedfl.data import (
    Columns,
    TaskChoice,
    fit_feature_map,
    fit_targets,
    is_file_name,
    read_numeric_table,
    require_targets,
)
from codedfl.errors import InputError
from codedfl.federation._certificates import make_authority, make_key_pair, make_server_certificate
from codedfl.federation._config_files import (
    client_toml,
    federation_toml,
    parse_client,
    parse_federation,
    read_federation,
)
from codedfl.federation._federation_config import FederationConfig
from codedfl.files import PRIVATE, make_private_folder, require_file, sync_folder, write_atomically
from codedfl.streams import Streams

DATA_FILE = "data.csv"
"""The table of a device for which no other was named."""

_INSECURE = "INSECURE.txt"
_WARNING = (
    "This federation has no certificates and no keys: anybody on the network can read its messages, change them, and pose as a "
    "device or as the server. Use it on one machine, for a trial.\n"
)


def is_insecure(folder: Path) -> bool:
    """Return whether a federation was set up without encryption and authentication."""
    return (folder / _INSECURE).exists()


Keys = Mapping[str, bytes]
"""Public keys in PEM, by the names of the devices."""


@dataclass(frozen=True)
class AddedDevice:
    """What is left to do by hand after a device was added.

    Args:
        folder: the folder to carry to the new device.
        copies: files to copy to every other device, each with its place in that device's folder.
    """

    folder: Path
    copies: tuple[tuple[Path, str], ...]


def initialise(
    folder: str | Path,
    config: FederationConfig,
    *,
    hosts: Iterable[str],
    insecure: bool = False,
    data_files: Mapping[str, str] | None = None,
) -> None:
    """Make the folder of a federation, with certificates, keys and the configuration of every device.

    ``server/`` stays on the server; ``devices/<name>/`` is carried to the device of that name. The key of the authority goes
    to no device. The folder appears when it is complete, or not at all.

    Args:
        folder: a folder that does not exist yet, or is empty.
        config: the federation.
        hosts: IP addresses and DNS names by which devices reach the server; that of ``server.address`` is added.
        insecure: make no certificates and no keys; ``INSECURE.txt`` and every ``client.toml`` say so.
        data_files: the table of each device, as a path on that device relative to its ``client.toml``; by default `DATA_FILE`.

    Raises:
        InputError: the folder is not empty or cannot be made, a host or a data file is wrong.
    """
    # Without resolving, a link or a path that ends in a dot would have another folder above it.
    target = Path(folder).expanduser().resolve()
    _require_new(target)
    _require_devices(config, data_files or {})
    if insecure and config.coding.sums_only:
        raise InputError(
            "coding.sums_only = true is not possible in an insecure federation, whose devices could not tell each other from the "
            "server: leave out one of the two."
        )
    with _appearing_at(target) as made:
        write_atomically(made / "federation.toml", federation_toml(config))
        server = make_private_folder(made / "server")
        make_private_folder(made / "devices")
        keys: dict[str, bytes] = {}
        if insecure:
            write_atomically(made / _INSECURE, _WARNING)
        else:
            _write_certificates(server, [_host_of(config.server.address), *hosts])
            make_private_folder(server / "keys")
        for name in config.devices:
            device = make_private_folder(made / "devices" / name)
            if not insecure:
                keys[name] = _write_key(device)
                write_atomically(server / "keys" / f"{name}.pub", keys[name])
        for name in config.devices:
            data_file = (data_files or {}).get(name, DATA_FILE)
            _write_device(made / "devices" / name, name, config, server, keys, data_file, insecure=insecure)


def add_device(folder: str | Path, name: str, *, data_file: str = DATA_FILE) -> AddedDevice:
    """Add a device to a federation that `initialise` made: its key, its folder, and its name and public key everywhere else.

    The federation's own ``federation.toml`` is written last: until then the device is not a member, and an interrupted attempt
    can be repeated.

    Args:
        folder: the folder of the federation.
        name: the name of the new device.
        data_file: its table, as a path on the device relative to its ``client.toml``.

    Returns:
        The new folder, and the files to copy to the other devices.

    Raises:
        InputError: the name is taken or impossible, or files of the federation are missing.
    """
    root = Path(folder).expanduser()
    config = read_federation(root / "federation.toml")
    if config.incentive.sensitivity:
        raise InputError(
            f"incentive.sensitivity = {shown(list(config.incentive.sensitivity))} has no value for the new device {shown(name)}: "
            f"empty it in {shown(root / 'federation.toml')}, and give all values afterwards."
        )
    if name in config.devices:
        raise InputError(
            f"the device {shown(name)} is already in {shown(root / 'federation.toml')}: choose another name."
        )
    extended = parse_federation(config.model_dump() | {"devices": [*config.devices, name]})
    if (root / "devices" / name).exists():
        raise InputError(
            f"{shown(root / 'devices' / name)} exists, but {shown(root / 'federation.toml')} does not name that device: remove "
            "the folder, which an interrupted attempt left, and try again."
        )
    insecure = is_insecure(root)
    server = root / "server"
    keys = {} if insecure else {other: _read_public(server, other) for other in config.devices}
    with _appearing_at((root / "devices" / name).resolve()) as made:
        if not insecure:
            keys[name] = _write_key(made)
        _write_device(made, name, extended, server, keys, data_file, insecure=insecure)
    copies = [(root / "federation.toml", "federation.toml")]
    if not insecure:
        write_atomically(server / "keys" / f"{name}.pub", keys[name])
        copies.append((server / "keys" / f"{name}.pub", f"roster/{name}.pub"))
    # Folders that were carried away for good need not be here any more.
    for other in filter(Path.is_dir, (root / "devices" / device for device in config.devices)):
        if not insecure:
            write_atomically(make_private_folder(other / "roster") / f"{name}.pub", keys[name])
        write_atomically(other / "federation.toml", federation_toml(extended))
    write_atomically(root / "federation.toml", federation_toml(extended))
    return AddedDevice(root / "devices" / name, tuple(copies))


def config_from_sample(
    path: str | Path,
    target: Sequence[str],
    devices: Sequence[str],
    *,
    task: TaskChoice = "auto",
    drop: Sequence[str] = (),
    standardize: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> FederationConfig:
    """Describe a federation by a sample of its data: columns, target, task, classes, and mean and scale of each column.

    Warning:
        The sample must be public. Its column names, its classes and its means and scales go to every device and to the
        server as they are, without noise: never use rows of a device.

    Args:
        path: a .csv, .parquet or .npz file with the columns that devices have.
        target: column(s) to predict; for an .npz file the name of one array, ``y`` by default.
        devices: names of the devices.
        task: "auto" takes numbers for a regression, and text, categories and booleans for a classification.
        drop: columns to leave out.
        standardize: whether devices subtract the sample's means and divide by its scales.
        settings: anything else in ``federation.toml``, nested by section.

    Raises:
        InputError: something is wrong with the file or the settings.
    """
    if not is_file_name(str(path)):
        raise InputError(f"the sample {shown(Path(path))} is not a table: give a .csv, .tsv, .npz or .parquet file.")
    require_file("the sample", path)
    columns = Columns((target,) if isinstance(target, str) else tuple(target), drop=tuple(drop))
    sample = read_numeric_table(Path(path), columns)
    encoding = fit_targets(sample.targets, task, sample.path)
    require_targets("the target", encoding.encode(sample.targets, sample.path), encoding.task)
    values = dict(settings or {})
    for key in ("data", "devices"):
        if key in values:
            raise InputError(f"settings.{key} = {shown(values[key])} is not possible beside a sample: leave it out.")
    values["devices"] = list(devices)
    is_classification = encoding.task == "classification"
    names = [target] if isinstance(target, str) else list(target) or ["y"]
    values["data"] = {
        "columns": sample.feature_names,
        "target": names if is_classification else encoding.names,
        "task": encoding.task,
        "classes": encoding.names if is_classification else (),
    }
    given = values.get("features", {})
    if standardize and isinstance(given, Mapping):
        fitted = fit_feature_map(
            sample.features, kind="none", standardize=True, scaling="none", rng=Streams(0).at("features")
        )
        if fitted.input_mean is not None and fitted.input_scale is not None:
            moments = {"mean": fitted.input_mean.tolist(), "scale": fitted.input_scale.tolist()}
            values["features"] = moments | dict(given)
    return parse_federation(values)


def _require_new(target: Path) -> None:
    try:
        if target == Path.cwd():
            raise InputError(
                f"{shown(target)} is the current folder: go to the folder above it and name it from there."
            )
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{shown(target)} is not an empty folder: name one that does not exist yet.")
    except OSError as error:
        raise InputError(f"{shown(target)} cannot be made ({error.strerror}): choose another folder.") from error


def _require_devices(config: FederationConfig, data_files: Mapping[str, str]) -> None:
    for name in data_files:
        if name not in config.devices:
            raise InputError(
                f"data_files names {shown(name)}, which is not among the devices {listing(config.devices)}: use their names."
                + did_you_mean(name, config.devices)
            )


@contextmanager
def _appearing_at(target: Path) -> Iterator[Path]:
    """Yield a hidden folder beside ``target``, which takes that name once it is complete, and is removed if it is not."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    except OSError as error:
        raise InputError(f"{shown(target)} cannot be made ({error.strerror}): choose another folder.") from error
    try:
        yield made
        _sync_folders(made)
        # Of an existing folder, the system replaces an empty one and refuses any other.
        made.rename(target)
        sync_folder(target.parent)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(
                f"{shown(target)} cannot be made ({error.strerror}): correct that and try again."
            ) from error
        raise


def _sync_folders(folder: Path) -> None:
    for path in (folder, *filter(Path.is_dir, folder.rglob("*"))):
        sync_folder(path)


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]


def _write_certificates(server: Path, hosts: Sequence[str]) -> None:
    authority = make_authority()
    certified = make_server_certificate(authority, hosts)
    write_atomically(server / "ca.crt", authority.certificate_pem)
    write_atomically(server / "ca.key", authority.private_pem, PRIVATE)
    write_atomically(server / "server.crt", certified.certificate_pem)
    write_atomically(server / "server.key", certified.private_pem, PRIVATE)


def _write_key(device: Path) -> bytes:
    pair = make_key_pair()
    write_atomically(device / "device.key", pair.private_pem, PRIVATE)
    return pair.public_pem


def _write_device(
    device: Path, name: str, config: FederationConfig, server: Path, keys: Keys, data_file: str, *, insecure: bool
) -> None:
    """Write everything in the folder of a device but its key."""
    client = parse_client({"name": name, "server": config.server.address, "data": data_file, "insecure": insecure})
    write_atomically(device / "client.toml", client_toml(client), PRIVATE)
    write_atomically(device / "federation.toml", federation_toml(config))
    if not insecure:
        write_atomically(device / "ca.crt", _read(server / "ca.crt"))
        roster = make_private_folder(device / "roster")
        for other, key in keys.items():
            write_atomically(roster / f"{other}.pub", key)


def _read_public(server: Path, name: str) -> bytes:
    return _read(server / "keys" / f"{name}.pub")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be read ({error.strerror}): bring it back, or make the federation anew."
        ) from error
