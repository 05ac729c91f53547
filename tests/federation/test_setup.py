"""The folders of a federation: complete or absent, private where they must be, and usable as they are."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from codedfl.data import fit_feature_map
from codedfl.errors import InputError
from codedfl.federation import _setup
from codedfl.federation._config_files import parse_federation, read_client, read_federation
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._setup import add_device, config_from_sample, initialise
from codedfl.files import write_atomically
from codedfl.streams import Streams

DEVICES = ("ward-1", "ward-2", "ward-3")


def federation(**values: Any) -> FederationConfig:
    data = {"columns": ["age", "dose"], "target": ["effect"], "task": "regression"}
    return parse_federation({"devices": DEVICES, "data": data, "server": {"address": "fl.example.org:9092"}} | values)


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Let nothing but the code itself keep files private."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    initialise(tmp_path / "fed", federation(), hosts=["192.0.2.7"], data_files={"ward-1": "/srv/ward one.parquet"})
    return tmp_path / "fed"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_private_key_of(private: Path, public: Path) -> bool:
    return load_pem_private_key(private.read_bytes(), None).public_key() == load_pem_public_key(public.read_bytes())


def test_the_folder_has_everything_and_nothing_else(made: Path) -> None:
    server = {f"server/{name}" for name in ("ca.crt", "ca.key", "server.crt", "server.key")}
    keys = {f"server/keys/{device}.pub" for device in DEVICES}
    devices = {
        f"devices/{device}/{name}"
        for device in DEVICES
        for name in (
            "client.toml",
            "federation.toml",
            "ca.crt",
            "device.key",
            *(f"roster/{other}.pub" for other in DEVICES),
        )
    }
    assert contents(made).keys() == {"federation.toml"} | server | keys | devices


def test_secrets_are_for_their_owner_alone(made: Path) -> None:
    folders = [path for path in (made, *made.rglob("*")) if path.is_dir()]
    secrets = [path for path in made.rglob("*") if path.suffix == ".key" or path.name == "client.toml"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert len(secrets) == 2 + 2 * len(DEVICES)


def test_the_key_of_the_authority_and_of_other_devices_go_to_no_device(made: Path) -> None:
    files = contents(made)
    secrets = {name: content for name, content in files.items() if name.endswith(".key")}
    for device in DEVICES:
        carried = [content for name, content in files.items() if name.startswith(f"devices/{device}/")]
        found = [name for name, secret in secrets.items() if secret in carried]
        assert found == [f"devices/{device}/device.key"]


def test_everybody_has_the_same_public_keys_and_federation(made: Path) -> None:
    assert read_federation(made / "federation.toml") == federation()
    for device in DEVICES:
        assert is_private_key_of(made / f"devices/{device}/device.key", made / f"server/keys/{device}.pub")
        assert (made / f"devices/{device}/federation.toml").read_bytes() == (made / "federation.toml").read_bytes()
        assert (made / f"devices/{device}/ca.crt").read_bytes() == (made / "server/ca.crt").read_bytes()
        for other in DEVICES:
            key = (made / f"devices/{device}/roster/{other}.pub").read_bytes()
            assert key == (made / f"server/keys/{other}.pub").read_bytes()


def test_the_client_file_leads_to_files_that_exist(made: Path) -> None:
    for device in DEVICES:
        folder = made / "devices" / device
        client = read_client(folder / "client.toml")
        assert client.name == device
        assert client.server == "fl.example.org:9092"
        assert not client.insecure
        assert client.data == ("/srv/ward one.parquet" if device == "ward-1" else "data.csv")
        for name in (client.certificate, client.key, client.federation):
            assert (folder / name).is_file()


def test_the_certificate_names_every_host(made: Path) -> None:
    certificate = x509.load_pem_x509_certificate((made / "server/server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    authority = x509.load_pem_x509_certificate((made / "devices/ward-1/ca.crt").read_bytes())
    certificate.verify_directly_issued_by(authority)


def test_an_insecure_federation_has_no_keys_and_says_so(tmp_path: Path) -> None:
    initialise(tmp_path / "fed", federation(), hosts=[], insecure=True)
    files = contents(tmp_path / "fed")
    devices = {f"devices/{device}/{name}" for device in DEVICES for name in ("client.toml", "federation.toml")}
    assert files.keys() == {"federation.toml", "INSECURE.txt"} | devices
    assert b"no certificates and no keys" in files["INSECURE.txt"]
    assert all(read_client(tmp_path / "fed/devices" / device / "client.toml").insecure for device in DEVICES)


def test_an_insecure_federation_cannot_hide_uploads_from_its_server(tmp_path: Path) -> None:
    config = federation(scheme="scfl", coding={"sums_only": True})
    with pytest.raises(
        InputError, match=r"^coding.sums_only = true is not possible in an insecure federation, .*leave out"
    ):
        initialise(tmp_path / "fed", config, hosts=[], insecure=True)
    assert not (tmp_path / "fed").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("precious")
    with pytest.raises(InputError, match=r"' is not an empty folder: name one that does not exist yet\.$"):
        initialise(tmp_path, federation(), hosts=[])
    with pytest.raises(InputError, match=r"results.csv' is not an empty folder: name one that does not exist yet\.$"):
        initialise(tmp_path / "results.csv", federation(), hosts=[])
    assert contents(tmp_path) == {"results.csv": b"precious"}


def test_an_empty_folder_and_folders_above_it_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new/deeper/fed"):
        initialise(folder, federation(), hosts=[])
        assert (folder / "federation.toml").is_file()


def test_the_current_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"is the current folder: go to the folder above it and name it from there\.$"):
        initialise(".", federation(), hosts=[])


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be made \(.+\): choose another folder\.$"):
        initialise(tmp_path / "file/fed", federation(), hosts=[])
    with pytest.raises(InputError, match=r"cannot be made \(File name too long\): choose another folder\.$"):
        initialise(tmp_path / ("x" * 300), federation(), hosts=[])


def test_wrong_hosts_and_data_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^hosts: 'a b' is neither an IP address nor a DNS name"):
        initialise(tmp_path / "fed", federation(), hosts=["a b"])
    with pytest.raises(
        InputError, match=r"^data_files names 'ward-4', which is not among the devices ward-1, ward-2, ward-3"
    ):
        initialise(tmp_path / "fed", federation(), hosts=[], data_files={"ward-4": "a.csv"})
    with pytest.raises(InputError, match=r'^data = "a.xls" is not possible: it must be a file whose name ends'):
        initialise(tmp_path / "fed", federation(), hosts=[], data_files={"ward-3": "a.xls"})
    assert list(tmp_path.iterdir()) == []


class Fault:
    """Call a function as often as allowed, and raise from then on."""

    def __init__(self, function: Callable[..., Any], allowed: int, error: BaseException) -> None:
        self.function, self.allowed, self.error = function, allowed, error

    def __call__(self, *arguments: Any) -> Any:
        if self.allowed == 0:
            raise self.error
        self.allowed -= 1
        return self.function(*arguments)


@pytest.mark.parametrize("name", ["write_atomically", "make_private_folder", "make_key_pair"])
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_failure_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, allowed: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_setup, name, Fault(getattr(_setup, name), allowed, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            initialise(tmp_path / "fed", federation(), hosts=[])
    assert list(tmp_path.iterdir()) == []
    initialise(tmp_path / "fed", federation(), hosts=[])


def test_a_full_disk_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(_setup, "write_atomically", Fault(write_atomically, 5, full))
    with pytest.raises(InputError, match=r"cannot be made \(No space left on device\): correct that and try again\.$"):
        initialise(tmp_path / "fed", federation(), hosts=[])
    assert list(tmp_path.iterdir()) == []


def test_two_federations_share_no_key(tmp_path: Path, made: Path) -> None:
    initialise(tmp_path / "other", federation(), hosts=["192.0.2.7"])
    ours, theirs = contents(made), contents(tmp_path / "other")
    assert not [name for name in ours if name.endswith((".key", ".pub", ".crt")) and ours[name] == theirs[name]]


def test_a_device_is_added(made: Path) -> None:
    before = contents(made)
    added = add_device(made, "ward-4", data_file="late.npz")
    files = contents(made)
    everybody = (*DEVICES, "ward-4")
    assert read_federation(made / "federation.toml") == federation(devices=everybody)
    assert added.folder == made / "devices/ward-4"
    assert read_client(added.folder / "client.toml").data == "late.npz"
    assert is_private_key_of(added.folder / "device.key", made / "server/keys/ward-4.pub")
    assert stat.S_IMODE((added.folder / "device.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(added.folder.stat().st_mode) == 0o700
    for device in everybody:
        assert files[f"devices/{device}/federation.toml"] == files["federation.toml"]
        assert files[f"devices/{device}/ca.crt"] == files["server/ca.crt"]
        for other in everybody:
            assert files[f"devices/{device}/roster/{other}.pub"] == files[f"server/keys/{other}.pub"]
    changed = {name for name in before if before[name] != files[name]}
    assert changed == {"federation.toml", *(f"devices/{device}/federation.toml" for device in DEVICES)}


def test_the_copies_bring_a_carried_folder_up_to_date(made: Path, tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    shutil.move(made / "devices/ward-2", carried)
    for file, place in add_device(made, "ward-4").copies:
        shutil.copy(file, carried / place)
    assert not (made / "devices/ward-2").exists()
    ours, theirs = contents(carried), contents(made / "devices/ward-1")
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if ours[name] != theirs[name]} == {"client.toml", "device.key"}


def test_a_device_joins_an_insecure_federation_without_keys(tmp_path: Path) -> None:
    initialise(tmp_path / "fed", federation(), hosts=[], insecure=True)
    added = add_device(tmp_path / "fed", "ward-4")
    assert contents(added.folder).keys() == {"client.toml", "federation.toml"}
    assert read_client(added.folder / "client.toml").insecure
    assert added.copies == ((tmp_path / "fed/federation.toml", "federation.toml"),)


@pytest.mark.parametrize("allowed", [0, 3, 6, 8, 12])
def test_adding_a_device_can_be_repeated_after_an_interruption(
    made: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_setup, "write_atomically", Fault(write_atomically, allowed, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            add_device(made, "ward-4")
    assert read_federation(made / "federation.toml") == federation()
    if (made / "devices/ward-4").exists():
        with pytest.raises(InputError, match=r"does not name that device: remove the folder, .* and try again\.$"):
            add_device(made, "ward-4")
        shutil.rmtree(made / "devices/ward-4")
    add_device(made, "ward-4")
    files = contents(made)
    for device in (*DEVICES, "ward-4"):
        assert files[f"devices/{device}/federation.toml"] == files["federation.toml"]
        assert files[f"devices/{device}/roster/ward-4.pub"] == files["server/keys/ward-4.pub"]


def test_what_cannot_be_added_is_refused(tmp_path: Path, made: Path) -> None:
    with pytest.raises(
        InputError, match=r"^the device 'ward-1' is already in '.*federation.toml': choose another name\.$"
    ):
        add_device(made, "ward-1")
    with pytest.raises(InputError, match=r'^devices\[3\] = "../x" is not possible: it must have 1 to 64 characters'):
        add_device(made, "../x")
    with pytest.raises(InputError, match=r"federation.toml cannot be read \(No such file or directory\)"):
        add_device(tmp_path / "nowhere", "ward-4")
    (made / "server/keys/ward-2.pub").unlink()
    with pytest.raises(InputError, match=r"ward-2.pub' cannot be read \(No such file or directory\): bring it back"):
        add_device(made, "ward-4")
    assert not (made / "devices/ward-4").exists()


def test_a_guess_for_every_device_leaves_none_for_a_new_one(tmp_path: Path) -> None:
    initialise(tmp_path / "fed", federation(incentive={"sensitivity": [1, 2, 3]}), hosts=[])
    with pytest.raises(
        InputError, match=r"^incentive.sensitivity = \[1.0, 2.0, 3.0\] has no value for the new device 'ward-4'"
    ):
        add_device(tmp_path / "fed", "ward-4")


@pytest.fixture
def sample() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, 40),
            "dose": rng.normal(5.0, 0.1, 40),
            "site": 1.0,
            "effect": rng.normal(size=40),
            "ill": rng.choice(["yes", "no", "unclear"], 40),
        }
    )


def saved(frame: pd.DataFrame, folder: Path, ending: str) -> Path:
    path = folder / f"sample{ending}"
    if ending == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_sample_describes_a_classification(tmp_path: Path, sample: pd.DataFrame, ending: str) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    config = config_from_sample(saved(sample, tmp_path, ending), ["ill"], DEVICES, drop=["effect"])
    assert config.devices == DEVICES
    assert config.data.columns == ("age", "dose", "site")
    assert config.data.target == ("ill",)
    assert config.data.task == "classification"
    assert config.data.classes == ("no", "unclear", "yes")
    inputs = sample[["age", "dose", "site"]].to_numpy().astype(np.float32).astype(np.float64)
    # Constants are float32, whose relative rounding error is at most 2^-24; a constant column is only shifted.
    np.testing.assert_allclose(config.features.mean, inputs.mean(axis=0), rtol=2**-23)
    np.testing.assert_allclose(config.features.scale, [*inputs.std(axis=0)[:2], 1], rtol=2**-23)


def test_a_sample_describes_a_regression(tmp_path: Path, sample: pd.DataFrame) -> None:
    path = saved(sample, tmp_path, ".csv")
    settings = {"scheme": "scfl", "features": {"map": "rff", "dimension": 12}, "training": {"rounds": 7}}
    config = config_from_sample(path, ["effect", "dose"], ["a"], drop=["ill"], standardize=False, settings=settings)
    assert config.data.target == ("effect", "dose")
    assert config.data.classes == ()
    assert (config.data.task, config.outputs, config.dimension) == ("regression", 2, 13)
    assert (config.features.mean, config.features.scale) == ((), ())
    assert (config.scheme, config.training.rounds) == ("scfl", 7)


def test_a_sample_of_arrays_gives_the_map_that_is_fitted_to_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(3, 2, size=(30, 4)).astype(np.float32)
    np.savez(tmp_path / "sample.npz", X=X, y=rng.integers(0, 3, 30))
    settings = {"features": {"map": "rff", "dimension": 20, "gamma": 0.25, "seed": 2}}
    config = config_from_sample(tmp_path / "sample.npz", [], ["a"], task="classification", settings=settings)
    assert config.data.columns == ("x0", "x1", "x2", "x3")
    assert (config.data.target, config.data.classes) == (("y",), ("0", "1", "2"))
    fitted = fit_feature_map(
        X, dimension=20, gamma=0.25, standardize=True, intercept=True, rng=Streams(2).at("features")
    )
    ours, theirs = config.map().to_arrays(), fitted.to_arrays()
    assert ours.keys() == theirs.keys()
    for name in ours:
        # Moments are summed in another order in float64, which the rounding to float32 can turn into one unit in the last place.
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2**-23 if name.startswith("input_") else 0)


def test_a_sample_that_does_not_fit_is_refused(tmp_path: Path, sample: pd.DataFrame) -> None:
    path = saved(sample, tmp_path, ".csv")
    with pytest.raises(
        InputError, match=r"^the sample 'digits' is not a table: give a .csv, .tsv, .npz or .parquet file\.$"
    ):
        config_from_sample("digits", ["y"], DEVICES)
    with pytest.raises(InputError, match=r"^the sample = '.*none.csv' is not a file: check the path"):
        config_from_sample(tmp_path / "none.csv", ["y"], DEVICES)
    with pytest.raises(InputError, match=r"^data.target = 'effetc' is not a column of .* Did you mean 'effect'\?$"):
        config_from_sample(path, ["effetc"], DEVICES)
    with pytest.raises(
        InputError, match=r"^settings.devices = \['a'\] is not possible beside a sample: leave it out\.$"
    ):
        config_from_sample(path, ["effect"], DEVICES, drop=["ill"], settings={"devices": ["a"]})
    with pytest.raises(
        InputError, match=r"^features = 3 is not possible: it must be a section with keys and values\.$"
    ):
        config_from_sample(path, ["effect"], DEVICES, drop=["ill"], settings={"features": 3})
