from __future__ import annotations

from typing import Any

import pytest

from codedfl.experiment import Config
from codedfl.paper import QUIRKS, Quirk, Scope
from codedfl.paper._setups import CIFAR10, DIGITS, MNIST, STEP_SIZES, Setup, changed
from tests.support import refusal_of

PRINTED: dict[str, Any] = {
    "data.devices": 20,
    "data.partition": "shards",
    "fleet.bandwidth_hz": 180_000,
    "fleet.noise_power_dbm": -70,
    "fleet.transmit_power_dbm": (15, 25),
    "fleet.mean_gain": 1e-8,
    "fleet.download_rate_bps": 1_000_000,
    "fleet.server_mac_rate": 15_360_000,
    "fleet.mac_rate": 1_536_000,
    "fleet.mac_rate_factor": (0.8, 1.0),
    "fleet.straggler_ratio": 0,  # so that the bandwidth is what it says
    "fleet.file": "",
    "training.local_steps": 5,
    "training.total_time_s": 20_000,
    "training.rounds": 0,
    "training.cohort": 0,
    "coding.coded_samples": 10_000,
    "coding.noise_variance": 0.25,
    "coding.label_noise_variance": 0,
    "coding.clip_norm": 0,
    "incentive.mechanism": "none",
}
"""Sec. VI-A, for both tasks."""


def value(config: Config, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """Return every ``section.key`` in which two configurations differ."""
    found = {}
    for section, ours in one.model_dump().items():
        theirs = other.model_dump()[section]
        pairs = [("", ours, theirs)] if not isinstance(ours, dict) else [(k, v, theirs[k]) for k, v in ours.items()]
        found.update({f"{section}.{key}".rstrip("."): (a, b) for key, a, b in pairs if a != b})
    return found


@pytest.mark.parametrize("key", PRINTED)
@pytest.mark.parametrize("setup", [MNIST, CIFAR10], ids=lambda setup: setup.name)
def test_both_tasks_have_the_parameters_of_section_vi_a(setup: Setup, key: str) -> None:
    assert value(setup.config, key) == PRINTED[key]


@pytest.mark.parametrize(
    ("setup", "dataset", "deadline", "server_batch"),
    [(MNIST, "mnist", 10.0, 499), (CIFAR10, "cifar10-vgg", 15.0, 562)],
    ids=["mnist", "cifar10"],
)
def test_each_task_has_its_own_data_deadline_and_server_batch(
    setup: Setup, dataset: str, deadline: float, server_batch: int
) -> None:
    assert setup.config.data.dataset == dataset
    assert setup.config.training.deadline_s == deadline
    assert setup.config.training.server_batch == server_batch


def test_mnist_is_seen_through_2000_random_features_and_cifar10_as_it_is() -> None:
    assert (MNIST.config.features.map, MNIST.config.features.dimension) == ("rff", 2000)
    assert CIFAR10.config.features.map == "none"


def test_the_tasks_differ_in_nothing_else() -> None:
    assert set(differences(MNIST.config, CIFAR10.config)) == {
        *("data.dataset", "features.map", "features.dimension", "features.gamma", "features.scaling"),
        *("training.deadline_s", "training.server_batch"),
    }


@pytest.mark.parametrize("setup", [MNIST, CIFAR10, DIGITS], ids=lambda setup: setup.name)
def test_step_sizes_come_from_one_grid(setup: Setup) -> None:
    assert setup.config.learning_rate.scale == "grid"
    assert setup.config.learning_rate.grid == STEP_SIZES
    assert setup.config.training.workers == 1
    assert setup.config.schemes == ("scfl",)


def test_a_quick_scope_is_on_digits_alone() -> None:
    quick = Scope(quick=True)
    assert quick.setups == (DIGITS,)
    assert quick.only(MNIST) is quick.only(CIFAR10) is DIGITS
    assert Scope().setups == (MNIST, CIFAR10)
    assert Scope().only(CIFAR10) is CIFAR10


def test_the_quirk_of_the_server_batch_changes_it_and_nothing_else() -> None:
    quirky = Scope(quirks=frozenset({"model-server-batch"}))
    for setup, batch in ((MNIST, 499), (CIFAR10, 562)):
        found = quirky.only(setup)
        assert differences(setup.config, found.config) == {"training.server_batch": (batch, 0)}
        assert (found.name, found.title) == (setup.name, setup.title)
    assert [setup.config for setup in quirky.setups] == [quirky.only(s).config for s in (MNIST, CIFAR10)]


def test_the_quirk_of_the_deadline_is_about_mnist_alone() -> None:
    """NOTES: the printed b_s = 499 is what the server's MAC rate allows in 6.5 s."""
    quirky = Scope(quirks=frozenset({"mnist-deadline"}))
    mnist, cifar10 = quirky.setups
    assert differences(MNIST.config, mnist.config) == {"training.deadline_s": (10.0, 6.5)}
    assert cifar10 is CIFAR10
    macs = 5 * 2 * 2000 * 10  # tau steps of N_MAC = 2 d o for a sample
    assert int(mnist.config.training.deadline_s * 15_360_000 / macs) == 499
    both = Scope(quirks=frozenset({"mnist-deadline", "model-server-batch"})).only(MNIST).config
    assert (both.training.deadline_s, both.training.server_batch) == (6.5, 0)


def test_the_quirk_of_the_sensitivities_changes_no_task() -> None:
    assert Scope(quirks=frozenset({"printed-sensitivities"})).setups == Scope().setups


@pytest.mark.parametrize("quirk", [quirk for quirk in QUIRKS if quirk != "stable-steps"])
def test_no_reading_of_the_paper_changes_the_quick_version(quirk: Quirk) -> None:
    assert Scope(quick=True, quirks=frozenset({quirk})).setups == (DIGITS,)


@pytest.mark.parametrize("quick", [True, False])
def test_stable_steps_changes_the_search_and_nothing_else(quick: bool) -> None:
    plain, stable = Scope(quick=quick).setups, Scope(quick=quick, quirks=frozenset({"stable-steps"})).setups
    for ours, theirs in zip(stable, plain, strict=True):
        assert not theirs.config.learning_rate.only_stable
        assert ours.config == theirs.changed(learning_rate__only_stable=True)


def test_without_seeds_there_is_nothing_to_do() -> None:
    assert "seeds = ()" in refusal_of(lambda: Scope(seeds=()))


def test_a_change_changes_what_it_names_alone() -> None:
    found = MNIST.changed(coding__coded_samples=50, fleet__straggler_ratio=0.5)
    assert differences(MNIST.config, found) == {
        "coding.coded_samples": (10_000, 50),
        "fleet.straggler_ratio": (0.0, 0.5),
    }
    assert changed(MNIST.config, {}) == MNIST.config


def test_a_changed_option_of_a_scheme_leaves_the_others() -> None:
    found = changed(DIGITS.config, {"options.scfl-fixed.batch": 7})
    assert found.options["scfl-fixed"] == {**DIGITS.config.options["scfl-fixed"], "batch": 7}
    assert {**found.options, "scfl-fixed": 0} == {**DIGITS.config.options, "scfl-fixed": 0}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("coding__coded_sample", "coding.coded_sample"),
        ("codings__coded_samples", "codings"),
        ("options__scfl__colour", "options.scfl.colour"),
    ],
)
def test_unknown_keys_are_refused(change: str, named: str) -> None:
    assert f"{named}: there is no such key" in refusal_of(lambda: DIGITS.changed(**{change: 1}))


def test_values_that_cannot_be_are_refused() -> None:
    assert "coding.coded_samples" in refusal_of(lambda: DIGITS.changed(coding__coded_samples=-1))
