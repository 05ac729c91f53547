from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl._version import __version__
from codedfl.cli import main
from codedfl.experiment import Config, load_config
from codedfl.models import Predictor
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.training import StopOnInterrupt
from tests.support import CLI_SMALL, Cli, CliResult, folder_contents, small_config, without_wall_times

QUICK = ("--rounds", "20", "--set", "learning_rate.scale=0.3", "--scheme", "fedavg", "--scheme", "scfl", "--json")


def one_object(result: CliResult) -> dict[str, Any]:
    """Return the only JSON object on standard output; NaN and infinities are no JSON."""

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    assert result.code == 0, result.err
    assert result.out.count("\n") == 1
    value = json.loads(result.out, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, to be copied and not to be changed."""
    path = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        patch.setattr(sys, "argv", ["codedfl", "run", *CLI_SMALL, "--json", "--out", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return path


def copy_of(folder: Path, target: Path) -> Path:
    for name, content in folder_contents(folder).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    return target


def test_json_is_one_strict_object_with_the_promised_keys(cli: Cli) -> None:
    result = cli("run", *CLI_SMALL, "--json", "--out", "out")
    summary = one_object(result)
    assert [scheme["scheme"] for scheme in summary["schemes"]] == ["fedavg", "scfl"]
    for scheme in summary["schemes"]:
        assert {
            *("scheme", "accuracy", "simulated_time_s", "everything_charged_s", "bytes_up", "status", "mi_dp_bits"),
            *("wall_time_s", "time_to_90_s", "time_to_95_s", "mean_arrivals", "charged_s", "message"),
        } <= set(scheme)
        assert scheme["status"] == "completed"
        assert scheme["everything_charged_s"] == pytest.approx(sum(scheme["charged_s"].values()))
        assert scheme["bytes_up"] == scheme["bytes_up_training"] + scheme["bytes_up_coded"]
    assert summary["schemes"][1]["mi_dp_bits"] == pytest.approx(0.5 * np.log2(1 + 60 / 0.1))
    assert json.loads(Path("out/summary.json").read_text()) == summary
    assert result.err == ""


def test_a_run_folder_holds_everything(finished: Path) -> None:
    assert set(folder_contents(finished)) == {
        *("config.toml", "details.json", "summary.json", "curves.csv", "curves.png", "curves-charged.png"),
        *("versions.json",),
        *("checkpoints/fedavg.npz", "checkpoints/scfl.npz", "models/fedavg.safetensors", "models/scfl.safetensors"),
        *("curves/fedavg.csv", "curves/scfl.csv"),
    }
    assert (finished / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert load_config(finished / "config.toml") == small_config()


@pytest.mark.slow
def test_the_tables_fit_eighty_columns(cli: Cli) -> None:
    everything = [word for name in SCHEMES if not make_scheme(name).private for word in ("--scheme", name)]
    result = cli("run", *everything, "--rounds", "12", "--set", "learning_rate.scale=0.3", "--out", "out")
    assert result.code == 0, result.err
    assert "…" not in result.out
    assert max(len(line) for line in result.out.splitlines()) <= 80
    header = next(line for line in result.out.splitlines() if line.startswith("scheme"))
    assert header.split() == [
        "scheme",
        "accuracy",
        "to",
        "90%",
        "to",
        "95%",
        "arrive",
        "MB",
        "up",
        "charged",
        "MI-DP",
        "wall",
        "s",
    ]
    assert "device-20" in result.out
    assert "results: out\n" in result.out
    assert "picture: out/curves.png\n" in result.out
    assert "1258 samples on 20 devices, 100 features; centralised accuracy 0.9" in result.err
    for name in ("FedAvg", "CFL-FB", "CodedFedL", "DP-CFL", "SCFL (b=32)", "SCFL"):
        assert f"\n{name} " in result.out
        assert f"{name}: completed, " in result.err


def test_every_shortcut_reaches_the_configuration(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []

    def stop(config: Config, **_: object) -> None:
        seen.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("codedfl.experiment.run", stop)
    Path("given.toml").write_text("seed = 1\n[training]\nlocal_steps = 9\ndeadline_s = 2.0\n")
    shortcuts = (
        *("--scheme", "scfl", "--scheme", "dp-cfl", "--dataset", "digits", "--devices", "7", "--total-time", "33.5"),
        *(
            "--tau",
            "3",
            "--coded-samples",
            "44",
            "--noise-variance",
            "0.75",
            "--seed",
            "5",
            "--data-dir",
            str(tmp_path),
        ),
        *(
            "--out",
            "here",
            "--set",
            "features.dimension=12",
            "--set",
            "learning_rate.scale=0.5",
            "--set",
            "options.scfl.batch=8",
        ),
    )
    cli("run", "given.toml", *shortcuts)
    cli("run", "--rounds", "17", "--set", "learning_rate.scale=0.5")
    config, other = seen
    assert config.schemes == ("scfl", "dp-cfl")
    assert (config.data.dataset, config.data.devices, config.data.data_dir) == ("digits", 7, str(tmp_path))
    assert (config.training.total_time_s, config.training.local_steps, config.training.deadline_s) == (33.5, 3, 2.0)
    assert (config.coding.coded_samples, config.coding.noise_variance, config.seed) == (44, 0.75, 5)
    assert (config.features.dimension, config.options["scfl"]["batch"]) == (12, 8)
    assert load_config(Path("here/config.toml")) == config
    assert other.training.rounds == 17


@pytest.mark.slow
def test_set_wins_over_a_shortcut(cli: Cli) -> None:
    summary = one_object(cli("run", *CLI_SMALL, "--json", "--set", "training.rounds=3", "--set", "seed=4"))
    assert (summary["seed"], summary["schemes"][0]["rounds"]) == (4, 3)
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith("-digits")


def refusals() -> list[Any]:
    cases: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        ("unknown key", ("--set", "training.round=3"), ("did you mean training.rounds?",)),
        ("unknown section", ("--set", "trainin.rounds=3"), ("did you mean training?",)),
        ("out of range", ("--devices", "0"), ("data.devices = 0", "1 or more")),
        ("nan", ("--noise-variance", "nan"), ("coding.noise_variance = NaN",)),
        ("negative noise", ("--noise-variance", "-1"), ("coding.noise_variance = -1", "0 or more")),
        ("count of noises", ("--set", "coding.noise_variance=[1, 2]"), ("2 value(s) for 20 device(s)",)),
        ("no equals sign", ("--set", "seed"), ("must look like section.key=value",)),
        ("missing config", ("nowhere.toml",), ("nowhere.toml cannot be read",)),
        ("not toml", ("broken.toml",), ("broken.toml is not valid TOML",)),
        ("unknown scheme", ("--scheme", "sclf"), ("'sclf'", "Did you mean 'scfl'?")),
        ("unknown dataset", ("--dataset", "minst"), ("data.dataset = 'minst'", "Did you mean 'mnist'?")),
        ("mnist absent", ("--dataset", "mnist", "--data-dir", "empty"), ("train-images-idx3-ubyte", "empty/mnist")),
        ("two lengths", ("--rounds", "3", "--total-time", "3"), ("--rounds and --total-time exclude each other",)),
        ("missing csv", ("--dataset", "nowhere.csv", "--target", "y"), ("nowhere.csv",)),
        ("no target", ("--dataset", "own.csv"), ("target",)),
        ("unknown target", ("--dataset", "own.csv", "--target", "z"), ("'z'",)),
        ("too short", ("--total-time", "0.5"), ("training.total_time_s = 0.5 is shorter than one round",)),
        ("nobody arrives", ("--set", "training.deadline_s=1e-6"), ("straggler_ratio = 0.3 is not attainable",)),
        ("reversed range", ("--set", "fleet.mac_rate_factor=[1.0, 0.8]"), ("fleet.mac_rate_factor",)),
        ("not utf-8", ("--dataset", "\udcff.csv"), ("UTF-8",)),
    ]
    return [pytest.param(arguments, words, id=name) for name, arguments, words in cases]


@pytest.mark.parametrize(("arguments", "words"), refusals())
def test_bad_input_ends_in_one_sentence_and_leaves_no_trace(
    cli: Cli, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    Path("broken.toml").write_text("seed = = 3")
    Path("own.csv").write_text("a,b,y\n" + "1,2,3\n2,3,5\n" * 30)
    Path("empty").mkdir()
    before = folder_contents(Path())
    result = cli("run", *arguments, "--out", "refused")
    result.assert_refused(*words)
    assert folder_contents(Path()) == before
    assert not Path("refused").exists()


def test_a_lack_of_memory_ends_in_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 477. GiB")

    monkeypatch.setattr("codedfl.experiment._build.fit_feature_map", too_large)
    result = cli("run", "--out", "refused")
    result.assert_refused(
        "out of memory (Unable to allocate 477. GiB): lower features.dimension or coding.coded_samples."
    )
    assert not Path("refused").exists()


@pytest.mark.parametrize("arguments", [("--devices", "many"), ("--nonsense",), ("a.toml", "b.toml"), ("--out",)])
def test_a_misused_option_exits_with_2_and_without_a_traceback(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli("run", *arguments)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert not Path("runs").exists()


def test_a_folder_in_use_is_left_alone(cli: Cli, finished: Path) -> None:
    before = folder_contents(finished)
    cli("run", *CLI_SMALL, "--out", str(finished)).assert_refused("exists and is not empty: add --resume")
    assert folder_contents(finished) == before


def test_a_finished_run_can_be_shown_again(cli: Cli, finished: Path, tmp_path: Path) -> None:
    copy = copy_of(finished, tmp_path / "copy")
    summary = one_object(cli("run", "--resume", "--out", str(copy), "--json"))
    assert without_wall_times(summary) == without_wall_times(json.loads((finished / "summary.json").read_text()))
    assert (copy / "curves.csv").read_text() == (finished / "curves.csv").read_text()


@pytest.mark.slow
def test_resume_takes_the_latest_run(cli: Cli, finished: Path) -> None:
    cli("run", "--resume").assert_refused("there is no run in runs/ to continue")
    copy_of(finished, Path("runs/one"))
    assert one_object(cli("run", "--resume", "--json"))["seed"] == 0


@pytest.mark.parametrize(
    "arguments", [("--seed", "3"), ("--set", "seed=3"), ("c.toml",), ("--scheme", "scfl"), ("--tau", "1")]
)
def test_resume_refuses_other_options(cli: Cli, finished: Path, arguments: tuple[str, ...]) -> None:
    cli("run", "--resume", "--out", str(finished), *arguments).assert_refused(
        "give only --out, --record-trace, --track and --json"
    )


def test_resume_refuses_a_folder_without_a_run(cli: Cli) -> None:
    Path("empty").mkdir()
    for name in ("empty", "nowhere"):
        cli("run", "--resume", "--out", name).assert_refused(f"{name} holds no run to resume")
    assert list(Path("empty").iterdir()) == []


@pytest.mark.parametrize("name", ["checkpoints/fedavg.npz", "checkpoints/scfl.npz", "config.toml", "step_sizes.json"])
@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated", "array"])
def test_a_damaged_run_folder_is_refused_and_kept(
    cli: Cli, finished: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = copy_of(finished, tmp_path / "copy")
    if name == "step_sizes.json":
        config = (copy / "config.toml").read_text()
        (copy / "config.toml").write_text(config.replace("scale = 0.5", 'scale = "grid"'))
        (copy / name).write_text('{"fedavg": {"scale": 0.5, "trials": []}}')
    np.save(tmp_path / "array.npy", np.zeros(3))
    whole = (copy / name).read_bytes()
    contents = {
        "empty": b"",
        "garbage": b"\x93garbage\xff" * 9,
        "truncated": whole[: whole.index(b"[data]") + 4 if name == "config.toml" else len(whole) // 2],
        "array": (tmp_path / "array.npy").read_bytes(),
    }
    if (name, damage) == ("config.toml", "empty"):  # which is the default configuration: not that of the checkpoints
        contents["empty"] = b"learning_rate.scale = 0.5"
    (copy / name).write_bytes(contents[damage])
    before = folder_contents(copy)
    sentence = cli("run", "--resume", "--out", str(copy)).assert_refused()
    assert Path(name).name in sentence or (name, damage) == ("config.toml", "empty")
    assert folder_contents(copy) == before


def test_an_interrupted_run_says_so_and_how_to_go_on(cli: Cli, monkeypatch: pytest.MonkeyPatch, finished: Path) -> None:
    rounds: list[int] = []

    def on_round(self: StopOnInterrupt, progress: Any) -> None:
        rounds.append(1)
        self.requested = len(rounds) >= 15
        asked(self, progress)

    asked = StopOnInterrupt.on_round
    with monkeypatch.context() as patch:
        patch.setattr(StopOnInterrupt, "on_round", on_round)
        result = cli("run", *CLI_SMALL, "--out", "my run")
    assert result.code == 130
    assert "stopped early; continue with: codedfl run --resume --out 'my run'\n" in result.out
    assert "SCFL: interrupted" in result.err
    assert cli("run", "--resume", "--out", "my run", "--json").code == 0
    assert Path("my run/curves.csv").read_bytes() == (finished / "curves.csv").read_bytes()


@pytest.mark.slow
def test_a_diverged_scheme_is_reported_with_a_remedy(cli: Cli) -> None:
    arguments = ("run", *CLI_SMALL, "--noise-variance", "1e6", "--out")
    table = cli(*arguments, "table")
    assert table.code == 0
    assert " diverged " in table.out
    assert "lower the learning rate" in " ".join(table.out.split())
    summary = one_object(cli(*arguments, "json", "--json"))
    fedavg, scfl = summary["schemes"]
    assert (fedavg["status"], scfl["status"], scfl["accuracy"]) == ("completed", "diverged", None)
    bounded = one_object(cli(*arguments, "bounded", "--json", "--set", "training.model_norm_bound=5"))
    assert bounded["schemes"][1]["distance_to_optimum"] is not None


@pytest.mark.slow
def test_the_printed_configuration_can_be_run(cli: Cli) -> None:
    printed = cli("config")
    assert printed.code == 0
    assert printed.out.count("\n# ") > 40
    Path("default.toml").write_text(printed.out)
    assert load_config(Path("default.toml")) == Config()
    summary = one_object(cli("run", "default.toml", *CLI_SMALL, "--json"))
    assert len(summary["schemes"]) == 2


def test_datasets_are_listed(cli: Cli) -> None:
    listed = cli("datasets")
    assert listed.code == 0
    assert all(name in listed.out for name in ("digits", "mnist", "fashion-mnist", "cifar10-vgg"))
    assert "…" not in listed.out
    found = json.loads(cli("datasets", "--json", "--data-dir", "elsewhere").out)
    assert {status["name"]: status["available"] for status in found} == {
        "digits": True,
        "mnist": False,
        "fashion-mnist": False,
        "cifar10-vgg": False,
    }
    assert all("elsewhere" in status["location"] for status in found if not status["available"])


def test_schemes_are_listed(cli: Cli) -> None:
    listed = cli("schemes")
    assert listed.code == 0
    assert "`" not in listed.out
    assert "…" not in listed.out
    assert all(word in listed.out for word in (*SCHEMES, "step-weighted"))
    assert max(len(line) for line in listed.out.splitlines()) <= 80


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version") == CliResult(0, f"codedfl {__version__}\n", "")


@pytest.mark.parametrize("command", [(), ("run",), ("config",), ("datasets",), ("schemes",)])
def test_every_command_explains_itself(cli: Cli, command: tuple[str, ...]) -> None:
    result = cli(*command, "--help")
    assert result.code == 0
    assert "Usage: " in result.out
    assert max(len(line) for line in result.out.splitlines()) <= 80


@pytest.mark.slow
def test_the_installed_command_works(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("codedfl")
    if not command.exists():
        pytest.skip("the package is not installed next to this interpreter")
    done = subprocess.run(
        [command, "run", "--scheme", "sclf"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    CliResult(done.returncode, done.stdout, done.stderr).assert_refused("Did you mean 'scfl'?")


def own_data(rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 4)) * [1, 10, 100, 0.1], columns=["a", "b", "c", "d"])
    frame["sum"] = frame.a + frame.b / 10
    frame["difference"] = frame.a - frame.c / 100
    frame["kind"] = np.where(frame["sum"] > 0, "[up]", "[/down]")
    frame["phone"] = [f"[phone {i % 5}]" for i in range(rows)]
    return frame


@pytest.mark.slow
def test_own_csv_with_classes_and_devices(cli: Cli) -> None:
    own_data().drop(columns=["sum", "difference"]).to_csv("own.csv", index=False)
    arguments = ("run", "--dataset", "own.csv", "--target", "kind", "--set", "data.device_column=phone")
    summary = one_object(cli(*arguments, *QUICK, "--out", "json"))
    assert (summary["task"], summary["metric"], summary["outputs"]) == ("classification", "accuracy", 2)
    assert [device["name"] for device in summary["devices"]] == [f"[phone {i}]" for i in range(5)]
    assert summary["schemes"][1]["accuracy"] > 0.9
    table = cli(*arguments, *QUICK[:-1], "--out", "[/table]")
    assert table.code == 0, table.err
    assert "[phone 3]" in table.out
    assert "[/down]: " in table.out
    assert "results: [/table]\n" in table.out
    model = Predictor.load("json/models/scfl.safetensors")
    assert set(model.predict(own_data()[["a", "b", "c", "d"]].to_numpy())) == {"[up]", "[/down]"}


@pytest.mark.slow
def test_own_csv_with_two_numeric_targets(cli: Cli) -> None:
    own_data().drop(columns=["kind", "phone"]).to_csv("own[a].csv", index=False)
    arguments = ("run", "--dataset", "own[a].csv", "--target", "sum", "--target", "difference")
    summary = one_object(cli(*arguments, *QUICK, "--out", "json"))
    assert (summary["task"], summary["metric"], summary["outputs"]) == ("regression", "r2", 2)
    assert summary["centralised"]["r2"] > 0.99
    assert all(isinstance(scheme["r2"], float) for scheme in summary["schemes"])
    table = cli(*arguments, *QUICK[:-1])
    assert table.code == 0, table.err
    assert "own[a].csv: the centralised optimum has r2 " in table.out
    header = next(line for line in table.out.splitlines() if line.startswith("scheme"))
    assert header.split()[1] == "r2"


@pytest.mark.slow
def test_own_npz(cli: Cli) -> None:
    frame = own_data()
    np.savez("own.npz", X=frame[["a", "b", "c", "d"]].to_numpy(), labels=frame["kind"].to_numpy().astype(str))
    summary = one_object(cli("run", "--dataset", "own.npz", "--target", "labels", *QUICK))
    assert summary["task"] == "classification"
    assert summary["schemes"][1]["accuracy"] > 0.7


@pytest.mark.slow
def test_own_parquet(cli: Cli) -> None:
    pytest.importorskip("pyarrow")
    own_data().drop(columns=["kind", "phone", "difference"]).to_parquet("own.parquet")
    summary = one_object(cli("run", "--dataset", "own.parquet", "--target", "sum", *QUICK))
    assert summary["metric"] == "r2"


@pytest.mark.slow
def test_two_runs_at_once_get_folders_of_their_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Still:
        @staticmethod
        def now() -> pd.Timestamp:
            return pd.Timestamp("2024-01-02 03:04:05")

    monkeypatch.setattr("codedfl.cli.outputs.datetime", Still)
    for _ in range(2):
        assert cli("run", *CLI_SMALL, "--json", "--rounds", "1").code == 0
    names = sorted(path.name for path in Path("runs").iterdir())
    assert names == ["20240102-030405-digits", "20240102-030405-digits-2"]
