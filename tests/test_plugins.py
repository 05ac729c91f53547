"""Plug-ins of packages that are put on the path as an installer would leave them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedfl.audits import run_empirical_audit
from codedfl.config import Config, load_config, to_toml
from codedfl.data import dataset_names, is_plugin_dataset, list_datasets, load_dataset
from codedfl.errors import InputError
from codedfl.experiment import (
    RunFolder,
    SweepFolder,
    build_experiment,
    grid_points,
    notes_on,
    parse_axes,
    run,
)
from codedfl.fleet import MeasuredFleet
from codedfl.planning import make_plan
from codedfl.plotting import draw_sweep
from codedfl.plugins import find_plugin, plugin_names, plugins
from codedfl.schemes import SCHEMES, make_scheme, scheme_names
from codedfl.training import Callback, RunProgress
from tests.plugin_sites import Offers, dist_info, template_site
from tests.support import CLI_SMALL, SMALL, Cli, refusal_of, small_config

numbers = itertools.count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that installs packages of one module each; ``@`` stands for its name in entry points."""
    site = tmp_path / f"site-{next(numbers)}"
    site.mkdir()

    def installed(code: str, **packages: Offers) -> None:
        module = f"plugin_{next(numbers)}"
        (site / f"{module}.py").write_text(code)
        for package, offers in packages.items():
            dist_info(
                site,
                package,
                {g: {n: t.replace("@", module) for n, t in points.items()} for g, points in offers.items()},
            )
        monkeypatch.syspath_prepend(str(site))

    return installed


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template, installed: its module and the entry points of its own pyproject.toml."""
    site = template_site(tmp_path / f"site-{next(numbers)}")
    monkeypatch.syspath_prepend(str(site))
    for module in [name for name in sys.modules if name.partition(".")[0] == "codedfl_template"]:
        monkeypatch.delitem(sys.modules, module)  # of another test's site
    return site


def test_without_plugins_there_is_what_is_built_in() -> None:
    assert plugins("fleet") == ()
    assert scheme_names() == tuple(SCHEMES)
    assert find_plugin("scheme", "fedavg") is None


@pytest.mark.usefixtures("template")
def test_the_template_offers_each_kind() -> None:
    assert [plugin_names(kind) for kind in ("scheme", "dataset", "fleet")] == [
        ("fedprox", "scaffold", "step-decay"),
        ("rings",),
        ("home-routers",),
    ]
    assert scheme_names() == (*SCHEMES, "fedprox", "scaffold", "step-decay")
    assert dataset_names()[-1] == "rings"
    assert is_plugin_dataset("rings")
    assert not is_plugin_dataset("digits")
    assert find_plugin("fleet", "home-routers").package == "codedfl-template 1.2"  # type: ignore[union-attr]


@pytest.mark.usefixtures("template")
def test_a_comparison_with_one_of_each() -> None:
    given = {"data__dataset": "rings", "fleet__file": "home-routers", "training__deadline_s": 30.0}
    config = small_config(schemes=["fedavg", "step-decay"], **{"options.step-decay.every": 4}, **given)
    comparison = run(config)
    fleet = comparison.setting.fleet
    assert isinstance(fleet, MeasuredFleet)
    assert fleet.names == comparison.setting.federation.device_names
    assert (
        comparison.setting.federation.dimension == 4
    )  # three columns as they are, and a constant, as for one's own file
    assert comparison["step-decay"].status == "completed"
    # Rounds until the first halving are those of FedAvg.
    ours, theirs = (comparison[name].curve for name in ("step-decay", "fedavg"))
    same = [a.loss == b.loss for a, b in zip(ours, theirs, strict=True)]
    assert same[:3] == [True] * 3  # after 0, 2 and 4 rounds
    assert not any(same[3:])
    assert load_dataset("rings", task="classification", rng=np.random.default_rng(0)).task == "classification"
    words = refusal_of(lambda: load_dataset("rings", task="regression", rng=np.random.default_rng(0)))
    assert "data.task = 'regression' does not fit data.dataset = 'rings', a classification" in words


@pytest.mark.usefixtures("template")
def test_options_of_a_plugin_are_part_of_the_configuration(tmp_path: Path) -> None:
    config = load_config(overrides=[("schemes", ["step-decay"])])
    assert config.options["step-decay"] == {"every": 50}
    assert "step-decay" not in Config().options
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert "# rounds after which the step size is halved\nevery = 50\n" in to_toml(config)
    assert load_config(tmp_path / "again.toml") == config
    for value, words in ((0, "options.step-decay.every"), ("x", "options.step-decay.every")):
        assert words in refusal_of(lambda value=value: make_scheme("step-decay", {"every": value}))  # type: ignore[misc]
    words = refusal_of(lambda: load_config(overrides=[("options.step-decay.evry", 3)]))
    assert "did you mean options.step-decay.every" in words


@pytest.mark.usefixtures("template")
def test_lists_say_which_package_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(monkeypatch, capsys)
    assert "step-decay comes from codedfl-template 1.2" in " ".join(cli("schemes").out.split())
    (status,) = [each for each in list_datasets() if each.package]
    assert (status.name, status.available, status.package) == ("rings", True, "codedfl-template 1.2")
    assert status.description == "1,200 points on two rings, 2 classes"
    assert "(from" in cli("datasets").out


BROKEN = """
from codedfl.schemes import fedavg

number = 3

class Builder:
    pass

def needs(option):
    return fedavg()

def fails():
    raise RuntimeError("out of luck.\\nsecond line")

def fails_with(*arguments):
    raise RuntimeError("out of luck.\\nsecond line")

def returns_nothing(*arguments):
    return None

def another_name():
    return fedavg()

def other_devices(names, rng):
    from codedfl.fleet import draw_fleet
    return draw_fleet(["x", "y"], rng)

def refuses(*arguments):
    from codedfl.errors import InputError
    raise InputError("rings.csv is missing: get it.")

def colourful():
    from dataclasses import replace
    return replace(fedavg(), name="bad", colour="teal")

def good():
    from dataclasses import replace
    return replace(fedavg(), name="good")
"""


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:x", "of the package broken 1.2 cannot be loaded (ModuleNotFoundError: No module named"),
        ("@:missing", "cannot be loaded (AttributeError:"),
        ("@:number", "is 3 instead of a function"),
        ("@:Builder", "instead of a function"),
        ("@:needs", "has arguments without a default (option)"),
        ("@:fails", "failed (RuntimeError: out of luck): update or uninstall that package."),
        ("@:returns_nothing", "has arguments without a default (arguments)"),
        ("@:another_name", "returned a scheme of another name, 'fedavg'"),
        ("@:colourful", "returned a scheme whose colour is 'teal' instead of #rrggbb"),
    ],
)
def test_a_broken_scheme_gives_one_sentence_and_breaks_nothing_else(
    install: Callable[..., None],
    target: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(BROKEN, broken={"codedfl.schemes": {"bad": target, "good": "@:good"}})
    sentence = refusal_of(lambda: make_scheme("bad"))
    assert words in sentence
    assert sentence.startswith("the scheme 'bad' of the package broken 1.2 ")
    assert "\n" not in sentence
    assert make_scheme("good").name == "good"
    assert make_scheme("fedavg").name == "fedavg"
    Config()
    listed = " ".join(Cli(monkeypatch, capsys)("schemes").out.split())
    assert "good comes from broken 1.2; bad: the scheme 'bad' of the package broken 1.2" in listed


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:x", "the dataset 'bad' of the package broken 1.2 cannot be loaded (ModuleNotFoundError"),
        ("@:fails_with", "the dataset 'bad' of the package broken 1.2 failed (RuntimeError: out of luck)"),
        ("@:returns_nothing", "returned a NoneType instead of a Dataset"),
        ("@:refuses", "rings.csv is missing: get it."),
    ],
)
def test_a_broken_dataset_gives_one_sentence(install: Callable[..., None], target: str, words: str) -> None:
    install(BROKEN, broken={"codedfl.datasets": {"bad": target}})
    sentence = refusal_of(lambda: load_dataset("bad", rng=np.random.default_rng(0)))
    assert words in sentence
    assert "\n" not in sentence
    statuses = {status.name: status for status in list_datasets()}
    assert statuses["bad"].available == target.startswith("@")
    assert ("cannot be loaded" in statuses["bad"].hint) == (not target.startswith("@"))
    assert statuses["digits"].available


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("@:fails_with", "the fleet 'bad' of the package broken 1.2 failed (RuntimeError: out of luck)"),
        ("@:returns_nothing", "returned a NoneType instead of a Fleet or MeasuredFleet"),
        ("@:other_devices", "returned a fleet of other devices than it was given the names of"),
    ],
)
def test_a_broken_fleet_gives_one_sentence(install: Callable[..., None], target: str, words: str) -> None:
    install(BROKEN, broken={"codedfl.fleets": {"bad": target}})
    assert words in refusal_of(lambda: build_experiment(small_config(fleet__file="bad")))
    words = refusal_of(lambda: build_experiment(small_config(fleet__file="bda")))
    assert "(installed packages offer bad)" in words
    assert words.endswith("Did you mean 'bad'?")


def test_a_file_takes_precedence_over_a_fleet_of_the_same_name(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(BROKEN, broken={"codedfl.fleets": {"bad": "@:fails_with"}})
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("mac_rate,transmit_power_dbm\n" + "1e6,20\n" * 6)
    fleet = build_experiment(small_config(fleet__file="bad")).setting.fleet
    assert fleet.columns()["mac_rate"].tolist() == [1e6] * 6


def test_names_that_are_built_in_stay_what_they_are_and_the_list_says_so(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(BROKEN, greedy={"codedfl.schemes": {"scfl": "@:good"}, "codedfl.datasets": {"digits": "@:fails_with"}})
    assert make_scheme("scfl").title == "SCFL"
    assert scheme_names() == tuple(SCHEMES)
    assert build_experiment(small_config()).setting.federation.devices == 6
    (plugin,) = plugins("scheme", SCHEMES)
    assert plugin.problem == "of greedy 1.2 is left out, as codedfl has a scheme of that name"
    assert plugin.problem in " ".join(Cli(monkeypatch, capsys)("schemes").out.split())
    own, theirs = (status for status in list_datasets() if status.name == "digits")
    assert own.available
    assert theirs.hint == "the dataset of greedy 1.2 is left out, as codedfl has a dataset of that name"


def test_a_name_that_two_packages_offer_is_refused_and_others_are_not(install: Callable[..., None]) -> None:
    install(
        BROKEN,
        one={"codedfl.schemes": {"bad": "@:fails", "good": "@:good"}},
        two={"codedfl.schemes": {"bad": "@:fails"}},
    )
    words = refusal_of(lambda: make_scheme("bad"))
    assert words == "the scheme 'bad' is offered by several packages (one 1.2, two 1.2): uninstall all but one."
    assert make_scheme("good").name == "good"
    assert plugin_names("scheme") == ("good",)


def test_a_name_that_would_be_an_odd_name_of_a_file_is_left_out(install: Callable[..., None]) -> None:
    install(BROKEN, odd={"codedfl.schemes": {"../good": "@:good"}})
    assert plugin_names("scheme") == ()
    assert "its name has other characters" in refusal_of(lambda: make_scheme("../good"))


def test_nothing_is_imported_before_it_is_asked_for(install: Callable[..., None]) -> None:
    install("raise SystemError('imported')", lazy={"codedfl.schemes": {"lazy": "@:x"}})
    assert plugin_names("scheme") == ("lazy",)
    assert make_scheme("scfl").name == "scfl"
    Config()
    assert "SystemError: imported" in refusal_of(lambda: make_scheme("lazy"))
    with pytest.raises(InputError, match=r"there is no 'lzay'.*Did you mean 'lazy'"):
        make_scheme("lzay")


MISTAKES = """
from dataclasses import dataclass, fields, replace
import numpy as np
from codedfl.schemes import fedavg
from codedfl.training import Scheme, SchemeState

def basis():
    inner = fedavg()
    values = {item.name: getattr(inner, item.name) for item in fields(Scheme)}
    return values | {"name": "bad"}

@dataclass(frozen=True)
class NoTuple(Scheme):
    def step(self, state, round):
        return self.moved(state, self.aggregation.combine(round, state.model), round.step_size)

@dataclass(frozen=True)
class Objects(Scheme):
    def init(self, prepared, model):
        @dataclass(frozen=True)
        class State(SchemeState):
            names: np.ndarray
        return State(**vars(super().init(prepared, model)), names=np.array(["a", None]))

@dataclass(frozen=True)
class LaterObjects(Scheme):
    def step(self, state, round):
        moved, nothing = super().step(state, round)
        return replace(moved, step_sum=[1.0, [2.0]]), nothing

@dataclass(frozen=True)
class Wide(Scheme):
    def step(self, state, round):
        moved, nothing = super().step(state, round)
        return replace(moved, model=moved.model[:, :1]), nothing

@dataclass(frozen=True)
class WideFinal(Scheme):
    def final_model(self, state):
        return state.model[:1]

@dataclass(frozen=True)
class NoRound(Scheme):
    def init(self, prepared, model):
        @dataclass(frozen=True)
        class State:
            model: np.ndarray
        return State(model)

@dataclass(frozen=True)
class NoModel(Scheme):
    def init(self, prepared, model):
        @dataclass(frozen=True)
        class State:
            round: int
            @property
            def model(self):
                return 1 / 0
        return State(0)

@dataclass(frozen=True)
class Stuck(Scheme):
    def step(self, state, round):
        return replace(super().step(state, round)[0], round=0), {}

@dataclass(frozen=True)
class Fails(Scheme):
    def step(self, state, round):
        return 1 / (state.round - state.round), {}

@dataclass(frozen=True)
class FailsInPreparing(Scheme):
    def require_possible(self, setting, plan):
        raise KeyError("depth")

@dataclass(frozen=True)
class NoPayload(Scheme):
    def update(self, memory, sent, local):
        return {"update": local.descend(sent["model"])}

@dataclass(frozen=True)
class NoNames(Scheme):
    def update(self, memory, sent, local):
        return memory, local.descend(sent["model"])

@dataclass(frozen=True)
class Undeclared(Scheme):
    def update(self, memory, sent, local):
        update = local.descend(sent["model"])
        return memory, {"update": update, "more": update}

@dataclass(frozen=True)
class WideUpdate(Scheme):
    def update(self, memory, sent, local):
        return memory, {"update": local.descend(sent["model"])[:, :1]}

@dataclass(frozen=True)
class NoArray(Scheme):
    def update(self, memory, sent, local):
        return memory, {"update": local.descend(sent["model"]).tolist()}

@dataclass(frozen=True)
class NothingSent(Scheme):
    def broadcast(self, state):
        return {}

@dataclass(frozen=True)
class MoreDeclared(Scheme):
    def travels_up(self, shape):
        return {"update": shape, "control": shape}

@dataclass(frozen=True)
class Unwritable(Scheme):
    def first_memory(self, shape, dtype):
        return {"control": np.zeros(shape, dtype)}

@dataclass(frozen=True)
class LaterUnwritable(Scheme):
    def first_memory(self, shape, dtype):
        return np.zeros(shape, dtype)
    def update(self, memory, sent, local):
        return [memory, "seen"], {"update": local.descend(sent["model"])}

def no_tuple(): return NoTuple(**basis())
def objects(): return Objects(**basis())
def later_objects(): return LaterObjects(**basis())
def wide(): return Wide(**basis())
def wide_final(): return WideFinal(**basis())
def no_round(): return NoRound(**basis())
def no_model(): return NoModel(**basis())
def stuck(): return Stuck(**basis())
def fails(): return Fails(**basis())
def fails_in_preparing(): return FailsInPreparing(**basis())
def no_payload(): return NoPayload(**basis())
def no_names(): return NoNames(**basis())
def undeclared(): return Undeclared(**basis())
def wide_update(): return WideUpdate(**basis())
def no_array(): return NoArray(**basis())
def nothing_sent(): return NothingSent(**basis())
def more_declared(): return MoreDeclared(**basis())
def unwritable(): return Unwritable(**basis())
def later_unwritable(): return LaterUnwritable(**basis())
"""


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("no_tuple", "returned a SchemeState from `step` instead of a state and a dictionary of diagnostics"),
        ("objects", "returned a state from `init` that no checkpoint can hold (TypeError: state.names is of the type"),
        (
            "later_objects",
            "returned a state from `step` that no checkpoint can hold (TypeError: state.step_sum is of the type",
        ),
        ("wide", "returned a model of shape (30, 1) from `step` instead of (30, 10)"),
        ("wide_final", "returned a model of shape (1, 10) from `final_model` instead of (30, 10)"),
        ("no_round", "returned a state from `init` without a round or a model (AttributeError: 'State' object has no"),
        ("no_model", "returned a state from `init` without a round or a model (ZeroDivisionError: division by zero)"),
        ("stuck", "returned a state of round 0 from `step` instead of 1"),
        ("fails", "failed in `step` at line 69 of "),
        ("fails_in_preparing", "failed in `require_possible` at line 74 of "),
        ("no_payload", "returned a dict from `update` instead of a memory and a payload"),
        ("no_names", "returned a ndarray from `update` instead of arrays by name"),
        ("undeclared", "returned ['more', 'update'] from `update`, where `travels_up` declares ['update']"),
        ("wide_update", "returned 'update' of shape (30, 1) from `update`, where `travels_up` declares (30, 10)"),
        ("no_array", "returned 'update' from `update` that is no array of floats"),
        ("nothing_sent", "returned [] from `broadcast`, where `travels_down` declares ['model']"),
        (
            "more_declared",
            "declares ['control', 'update'] in `travels_up`, where devices without an `update` of its own send",
        ),
        (
            "unwritable",
            "returned a memory from `first_memory` that no checkpoint can hold (TypeError: memory is of the",
        ),
        (
            "later_unwritable",
            "returned a memory from `update` that no checkpoint can hold (TypeError: memory is of the",
        ),
    ],
)
def test_a_mistake_in_a_scheme_ends_in_one_sentence_with_package_and_method(
    install: Callable[..., None],
    builder: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(MISTAKES, broken={"codedfl.schemes": {"bad": f"@:{builder}"}})
    sentence = refusal_of(lambda: run(small_config(schemes=["bad"])))
    assert words in sentence
    assert "the package broken 1.2 " in sentence
    assert "\n" not in sentence
    monkeypatch.chdir(tmp_path)
    ended = Cli(monkeypatch, capsys)("run", *CLI_SMALL[4:], "--scheme", "bad", "--out", "refused")
    assert (ended.code, ended.err.splitlines()[-1]) == (2, f"codedfl: {sentence}")
    assert "Traceback" not in ended.err
    assert not Path("refused").exists()


@pytest.mark.usefixtures("template")
def test_an_audit_sees_the_updates_of_a_scheme_that_sends_more_than_those() -> None:
    audit = run_empirical_audit(small_config(schemes=["fedavg", "scaffold"], training__rounds=2), canaries=100)
    plain, scaffold = audit.schemes
    assert scaffold.covers == "nothing"
    assert scaffold.everything.canaries == plain.everything.canaries == 100
    assert scaffold.everything.epsilon > 0, "updates in the clear give canaries away"


UNREADABLE = """
from dataclasses import dataclass, replace
from codedfl.schemes import fed3r
from codedfl.uploads import ExactStatistics

@dataclass(frozen=True)
class Listed:
    features: object

@dataclass(frozen=True)
class OwnStatistics(ExactStatistics):
    def simulated(self, setting, coverage):
        return Listed(super().simulated(setting, coverage))

def own():
    return replace(fed3r(), name="own", upload=OwnStatistics())
"""


def test_an_audit_refuses_an_upload_that_it_cannot_read(install: Callable[..., None]) -> None:
    install(UNREADABLE, own={"codedfl.schemes": {"own": "@:own"}})
    sentence = refusal_of(lambda: run_empirical_audit(small_config(schemes=["own"]), canaries=100))
    assert "the audit cannot read the Listed that the server holds after the upload" in sentence


DECLARES = """
from dataclasses import dataclass
from codedfl.schemes import dp_cfl
from codedfl.training import DeviceWork, Idle, Scheme

@dataclass(frozen=True)
class Quiet(DeviceWork):
    idle = True
    def plan(self, setting, arrivals=None):
        return Idle().plan(setting, arrivals)

@dataclass(frozen=True)
class Own(Scheme):
    def remarks(self, state):
        return (f"went {state.round} rounds without devices",)

def own():
    return Own(**vars(dp_cfl()) | {"name": "own", "title": "Own", "device": Quiet(), "colour": "#123456"})
"""


def test_what_a_scheme_declares_holds_wherever_it_is_asked_for(install: Callable[..., None]) -> None:
    def picture(name: str) -> bytes:
        score = {"mean": 0.9, "values": [0.9]}
        mean = {"values": {"seed": 0}, "scheme": name, "title": "Own", "score": score, "centralised": {"mean": None}}
        return draw_sweep({"seed": [0]}, [mean], "accuracy")

    dark = picture("own")
    install(DECLARES, own={"codedfl.schemes": {"own": "@:own"}})
    assert picture("own") != dark == picture("another"), "the colour is its own, by its name as well"
    config = small_config(schemes=["dp-cfl", "own"], privacy__epsilon=2.0, learning_rate__scale="grid")
    comparison = run(config)
    theirs, ours = comparison["dp-cfl"], comparison["own"]
    assert ours.choice is None, "its devices are idle: the step depends on the upload alone"
    assert ours.learning_rate == theirs.learning_rate
    assert comparison.privacy("own")["covers"] == "everything"
    rounds = ours.final.round
    assert f"Own went {rounds} rounds without devices." in notes_on(comparison)
    assert not any(note.startswith("DP-CFL went") for note in notes_on(comparison))


FORECASTS = """
from dataclasses import dataclass, fields
from typing import ClassVar
from codedfl.schemes import fedavg
from codedfl.training import Scheme

def of(kind, name):
    return kind(**{item.name: getattr(fedavg(), item.name) for item in fields(Scheme)} | {"name": name})

@dataclass(frozen=True)
class Another(Scheme):
    def step(self, state, round):
        return super().step(state, round)

@dataclass(frozen=True)
class Declared(Another):
    forecast: ClassVar[str] = "steps"

def silent(): return of(Another, "silent")
def declared(): return of(Declared, "declared")
def composed(): return of(Scheme, "composed")
"""


def test_a_plan_leaves_out_a_scheme_that_trains_in_a_way_of_its_own(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("silent", "declared", "composed")
    install(FORECASTS, own={"codedfl.schemes": {name: f"@:{name}" for name in names}})
    plan = make_plan(small_config(schemes=["fedavg", *names]))
    assert (plan["silent"].status, plan["silent"].reason) == (
        "impossible",
        "a scheme of own 1.2 that does not say how to predict it",
    )
    assert plan["silent"].best_below == float("inf")
    for name in ("declared", "composed"):
        assert plan[name].best_below == plan["fedavg"].best_below
    shown = Cli(monkeypatch, capsys)("plan", "--devices", "6", "--scheme", "silent", "--scheme", "fedavg")
    assert "a scheme of own 1.2 that does not say how to predict it" in " ".join(shown.out.split())


def changed_source(site: Path) -> None:
    """A line in another module than the entry point's."""
    module = site / "codedfl_template/dataset.py"
    module.write_text(module.read_text() + "# changed\n")


def changed_version(site: Path) -> None:
    (metadata,) = site.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Version: 1.2", "Version: 1.3"))


@pytest.mark.parametrize("change", [changed_source, changed_version])
def test_a_run_is_not_resumed_with_another_plugin(
    change: Callable[[Path], None], template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(schemes=["fedavg", "step-decay"])
    folder = RunFolder.create(tmp_path / "run", config)
    with pytest.raises(KeyboardInterrupt):
        run(config, folder=folder, callbacks=Killed(14))
    versions = json.loads((folder.path / "versions.json").read_text())
    assert versions["scheme step-decay"].startswith("codedfl-template 1.2, source ")
    assert not any("fedavg" in name for name in versions)
    assert RunFolder.reopen(folder.path).config == config
    change(template)
    monkeypatch.syspath_prepend(str(tmp_path))  # entry points are looked up anew
    words = refusal_of(lambda: RunFolder.reopen(folder.path))
    assert "was begun with another scheme step-decay (codedfl-template 1.2, source " in words
    assert words.endswith("install that version again, or give another folder.")
    assert not refusal_of(lambda: RunFolder.reopen(RunFolder.create(tmp_path / "new", config).path))


@pytest.mark.usefixtures("template")
def test_all_plugins_of_a_run_are_recorded_and_none_of_others(tmp_path: Path) -> None:
    config = small_config(
        schemes=["fedavg"], data__dataset="rings", fleet__file="home-routers", training__deadline_s=30
    )
    folder = RunFolder.create(tmp_path / "run", config)
    run(config, folder=folder)
    versions = json.loads((folder.path / "versions.json").read_text())
    assert list(versions)[-2:] == ["dataset rings", "fleet home-routers"]
    assert versions["dataset rings"] == versions["fleet home-routers"]
    assert "scheme step-decay" not in versions


def test_a_sweep_is_not_resumed_with_another_plugin(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(given: Sequence[tuple[str, object]]) -> Config:
        return load_config(overrides=[*SMALL.items(), ("schemes", ["step-decay"]), *given])

    axes = parse_axes(["training.local_steps=1,2"])
    SweepFolder.create(tmp_path / "sweep", axes, grid_points(load, axes, 1)).run()
    assert SweepFolder.reopen(tmp_path / "sweep").pending == []
    changed_source(template)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "another scheme step-decay" in refusal_of(lambda: SweepFolder.reopen(tmp_path / "sweep"))


@dataclass
class Killed(Callback):
    """Kills the process after some rounds, those of all schemes together."""

    rounds: int

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        self.rounds -= 1
        if self.rounds == 0:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("template")
def test_a_defect_of_codedfl_is_not_blamed_on_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("codedfl.experiment._family.Family._say_sizes", broken)
    with pytest.raises(ZeroDivisionError):
        run(small_config(schemes=["step-decay"]))


@pytest.mark.slow
def test_the_template_is_used_by_the_real_command(tmp_path: Path) -> None:
    site = template_site(tmp_path / "site")
    command = [
        *(sys.executable, "-m", "codedfl", "run", "--dataset", "rings", "--scheme", "fedavg", "--scheme", "step-decay"),
        *("--set", "fleet.file=home-routers", "--set", "training.deadline_s=30", "--rounds", "20", "--devices", "6"),
        *("--set", "learning_rate.scale=0.5", "--out", "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Step decay" in done.stdout
    assert (tmp_path / "out" / "summary.json").is_file()
    missing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
