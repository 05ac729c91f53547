"""The example of a new upload in ``docs/architecture.md`` works: its two files, installed as a plug-in."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.experiment import run
from codedfl.privacy import PrivacyTarget
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.training import LearningRate, train
from codedfl.uploads import Upload
from tests.docs.pages import DOCS, blocks
from tests.federation.conftest import digits, made, naps, seeded_server  # noqa: F401 (fixtures)
from tests.federation.support import digits_config, open_clients, simulated
from tests.federation.support import run as federate
from tests.plugin_sites import dist_info
from tests.problems import make_federation, make_setting
from tests.support import small_config
from tests.uploads.conformance import CHECKS


def files_of_page() -> dict[str, str]:
    """Return the code of the page by the path in its first line."""
    python = (code for _, language, code, _ in blocks(DOCS / "architecture.md") if language == "python")
    return {match[1]: code for code in python if (match := re.match(r"# (example/\w+\.py)\n", code))}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    (site / "example").mkdir(parents=True)
    for name, code in files_of_page().items():
        (site / name).write_text(code, encoding="utf-8")
    dist_info(site, "example", {"codedfl.schemes": {"class-means": "example.class_means:class_means"}})
    monkeypatch.syspath_prepend(str(site))
    yield
    for module in [name for name in sys.modules if name.partition(".")[0] == "example"]:
        del sys.modules[module]


def class_sums() -> Upload:
    upload: Upload = import_module("example.class_sums").ClassSums()
    return upload


def test_there_are_two_files() -> None:
    assert set(files_of_page()) == {"example/class_sums.py", "example/class_means.py"}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("everybody", [True, False])
@pytest.mark.parametrize("target", [None, PrivacyTarget(2.0, 1e-5)])
def test_the_upload_keeps_the_contract(
    check: Callable[[Upload, Setting], None], everybody: bool, target: PrivacyTarget | None
) -> None:
    federation = make_federation((14, 22, 9), 4, 2, dtype=np.float32)
    setting = make_setting(federation, noise_variance=(0.5, 1.5, 1.0), privacy=target)
    participants = None if everybody else np.array([True, False, True])
    check(class_sums(), replace(setting, code=replace(setting.code, clip_norm=0.9, participants=participants)))


def test_without_noise_the_model_is_the_mean() -> None:
    setting = make_setting(make_federation((14, 22, 9), 4, 2, dtype=np.float64))
    prepared = make_scheme("class-means", {"noise": False}).prepare(setting)
    result = train(prepared, LearningRate(1.0), 0)
    X, Y = setting.federation.features, setting.federation.labels
    np.testing.assert_allclose(result.model, X.T @ Y / len(X), rtol=1e-12)
    assert result.status == "completed"


def test_a_run_states_what_it_reveals() -> None:
    config = small_config(schemes=["class-means"], coding__clip_norm=1.0, coding__noise_variance=4.0)
    comparison = run(config)
    final, guarantee = comparison["class-means"].final, comparison.guarantee("class-means")
    assert final.score > 0.5, "ten classes"
    assert final.bytes_up == 6 * 30 * 10 * 4
    assert guarantee.covers == "everything"
    assert [release.message for release in guarantee.messages] == ["class sums"]
    assert guarantee.epsilon == pytest.approx(1.9931, abs=5e-4), "a Gaussian mechanism with the noise multiplier 2"


def test_a_run_keeps_the_epsilon_that_it_is_given() -> None:
    comparison = run(small_config(schemes=["class-means"], privacy__epsilon=2.0, coding__clip_norm=1.0))
    guarantee = comparison.guarantee("class-means")
    assert (guarantee.covers, guarantee.delta) == ("everything", 1e-5)
    assert 1.99 < guarantee.epsilon <= 2.0


def test_a_federation_finds_the_model_of_the_simulator(
    made: Callable[..., Path],  # noqa: F811 (a fixture)
    naps: Any,  # noqa: ARG001, F811
    seeded_server: None,  # noqa: ARG001, F811
) -> None:
    config = digits_config(scheme="class-means", coding={"clip_norm": 1.0, "noise_variance": 1.0})
    folder = made(config)
    clients = open_clients(folder, "class-sums")
    rounds = federate(folder, clients)
    np.testing.assert_array_equal(rounds.model, simulated(folder, config, clients, rounds))
    assert rounds.curve[-1]["score"] > 0.5
