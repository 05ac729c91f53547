"""Every upload passes the same suite, and the suite catches uploads that are broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from inspect import isabstract
from typing import Any

import numpy as np
import pytest

from codedfl import uploads
from codedfl.privacy import CodedMechanism, GaussianMechanism, Release
from codedfl.setting import Setting
from codedfl.training import Idle
from codedfl.uploads import (
    AgreedNoise,
    CodedFactor,
    CodedRows,
    ExactStatistics,
    Mean,
    NoisyStatistics,
    Received,
    SketchedFactor,
    Sketches,
    Subspace,
    Terms,
    Upload,
)
from tests.private_settings import THREAT_MODELS, private_setting
from tests.problems import make_federation, make_setting
from tests.uploads import conformance
from tests.uploads.conformance import CHECKS

Check = Callable[[Upload, Setting], None]

EXAMPLES: dict[str, Upload] = {
    "rows": CodedRows(),
    "rows without noise": CodedRows(noise=False),
    "factor": CodedFactor(),
    "sketch of factors": SketchedFactor(rank=2),
    "sketch": Subspace(rank=2, rows=100, noise=True),
    "sketch of some rows": Subspace(rank=2, rows=6, noise=True),
    "sketch without noise": Subspace(rank=2, rows=6),
    "exact statistics": ExactStatistics(),
    "noisy statistics": NoisyStatistics(),
    "noisy statistics, adaptive": NoisyStatistics("adassp"),
    "mean": Mean(curvature="mean"),
    "sketches": Sketches(2, 0.3),
}


def setting_for(upload: Upload) -> Setting:
    """Return a setting in which its noise is of the size of what it hides."""
    federation = make_federation((14, 22, 9), 4, 2, dtype=np.float32)
    noise = {"noise_variance": (0.5, 1.5, 1.0), "label_noise_variance": 0.7, "coded_samples": 12}
    setting = make_setting(federation, encoder="gram", **noise)  # type: ignore[arg-type]
    setting = replace(setting, code=replace(setting.code, clip_norm=0.9))
    if upload.name in ("noisy-statistics", "mean", "sketches"):
        target = private_setting(100.0).privacy
        return replace(setting, privacy=target)
    return setting


def private(upload: Upload, threat_model: Any) -> Setting:
    setting = setting_for(upload)
    return replace(setting, privacy=private_setting(100.0, threat_model).privacy)


def test_every_upload_has_an_example() -> None:
    offered = (getattr(uploads, name) for name in uploads.__all__)
    kinds = {each for each in offered if isinstance(each, type) and issubclass(each, Upload) and not isabstract(each)}
    assert {type(upload) for upload in EXAMPLES.values()} == kinds
    assert len({kind.name for kind in kinds}) == len(kinds) - 1, "a factor may be sketched"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("upload", EXAMPLES.values(), ids=EXAMPLES)
def test_an_upload_keeps_its_contract(upload: Upload, check: Check) -> None:
    check(upload, setting_for(upload))


@pytest.mark.slow
@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("upload", EXAMPLES.values(), ids=EXAMPLES)
def test_an_upload_keeps_its_contract_under_a_target(upload: Upload, check: Check, threat_model: Any) -> None:
    check(upload, private(upload, threat_model))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("upload", EXAMPLES.values(), ids=EXAMPLES)
def test_an_upload_keeps_its_contract_when_a_device_takes_no_part(upload: Upload, check: Check) -> None:
    setting = setting_for(upload)
    some = replace(setting.code, participants=np.array([True, False, True]))
    check(upload, replace(setting, code=some))


# Breakages --------------------------------------------------------------------------------------------------------------


def broken(upload: Upload, **methods: Any) -> Upload:
    """Return an upload of a subclass with other methods."""
    cls = type(f"Broken{type(upload).__name__}", (type(upload),), methods)
    made: Upload = cls(**{field.name: getattr(upload, field.name) for field in fields(upload)})  # type: ignore[arg-type]
    return made


def sends_less(upload: Upload) -> Upload:
    def draw(self: Upload, *given: Any) -> dict[str, Any]:
        arrays = type(upload).draw(self, *given)
        first = next(iter(arrays))
        return {**arrays, first: arrays[first][:-1]}

    return broken(upload, draw=draw)


def sends_double(upload: Upload) -> Upload:
    def draw(self: Upload, *given: Any) -> dict[str, Any]:
        other = {np.dtype(np.float32): np.float64, np.dtype(np.float64): np.float32}
        return {name: array.astype(other[array.dtype]) for name, array in type(upload).draw(self, *given).items()}

    return broken(upload, draw=draw)


def draws_elsewhere(upload: Upload) -> Upload:
    def draw(self: Upload, *given: Any) -> dict[str, Any]:
        arrays = type(upload).draw(self, *given)
        return {name: array * np.random.random() for name, array in arrays.items()}  # noqa: NPY002

    return broken(upload, draw=draw)


def trusts_the_first(upload: Upload) -> Upload:
    def collect(self: Upload, terms: Any, samples: Any, received: Iterable[tuple[int, Received]]) -> Any:
        def counted() -> Iterable[tuple[int, Received]]:
            for place, (i, each) in enumerate(received):
                arrays = {name: array * (3.0 if place == 0 else 1.0) for name, array in each.arrays.items()}
                yield i, replace(each, arrays=arrays)

        return type(upload).collect(self, terms, samples, counted())

    return broken(upload, collect=collect)


def simulates_other_data(upload: Upload) -> Upload:
    def simulated(self: Upload, setting: Setting, coverage: Any) -> Any:
        federation = setting.federation
        halved = replace(federation, features=federation.features / 2)
        plan = Idle().plan(replace(setting, federation=halved))
        del coverage
        return type(upload).simulated(self, replace(setting, federation=halved), plan)

    return broken(upload, simulated=simulated)


def simulates_without_noise(upload: Upload) -> Upload:
    def simulated(self: Upload, setting: Setting, coverage: Any) -> Any:
        quiet = setting if setting.privacy is None else replace(setting, privacy=replace(setting.privacy, epsilon=1e9))
        return type(upload).simulated(self, replace(quiet, code=setting.code.without_noise()), coverage)

    return broken(upload, simulated=simulated)


def claims_less(upload: Upload) -> Upload:
    def less(mechanism: Any) -> Any:
        match mechanism:
            case None:
                return GaussianMechanism(1.0)
            case GaussianMechanism(noise_multiplier=z):
                return replace(mechanism, noise_multiplier=2 * z)
            case CodedMechanism(signal_to_noise=ratio):
                return replace(mechanism, signal_to_noise=ratio / 4)

    def releases(self: Upload, *given: Any) -> Any:
        told = type(upload).releases(self, *given)
        return tuple(replace(release, mechanism=less(release.mechanism)) for release in told)

    return broken(upload, releases=releases)


def hides_a_release(upload: Upload) -> Upload:
    return broken(upload, releases=lambda *_: ())


def forgets_who_adds_noise(upload: Upload) -> Upload:
    """As if whoever sees less saw the data as it is."""
    return broken(upload, releases_in_sum=lambda self, *_: (Release(self.message, None),))


def asks_for_too_little_noise(upload: Upload) -> Upload:
    return broken(upload, largest_ratio=lambda self, *given: 4 * type(upload).largest_ratio(self, *given))


def agrees_on_less_noise(upload: Upload) -> Upload:
    def agreed_noise(self: Upload, terms: Terms) -> AgreedNoise | None:
        agreed = type(upload).agreed_noise(self, terms)
        return None if agreed is None else replace(agreed, noise_variance=agreed.noise_variance / 2)

    return broken(upload, agreed_noise=agreed_noise)


def charges_half(upload: Upload) -> Upload:
    def cost(self: Upload, *given: Any) -> Any:
        whole = type(upload).cost(self, *given)
        return replace(whole, bits=whole.bits / 2)

    return broken(upload, cost=cost)


def says_nothing(upload: Upload) -> Upload:
    return broken(upload, describe=lambda _: "")


def everything(upload: Upload) -> bool:  # noqa: ARG001
    return True


def noisy(upload: Upload) -> bool:
    return upload.noise


def keeping_a_target(upload: Upload) -> bool:
    return upload.noise and upload.name != "subspace"


def bounded(upload: Upload) -> bool:
    return not isinstance(upload, ExactStatistics)


BREAKAGES: tuple[tuple[Callable[[Upload], Upload], Check, Callable[[Upload], bool]], ...] = (
    (sends_less, conformance.check_that_a_draw_is_as_laid_out, everything),
    (sends_double, conformance.check_that_a_draw_is_as_laid_out, everything),
    (draws_elsewhere, conformance.check_that_a_draw_depends_on_rows_and_noise_alone, everything),
    (trusts_the_first, conformance.check_that_order_does_not_matter, everything),
    (simulates_other_data, conformance.check_that_a_simulation_has_the_law_of_the_two_halves, everything),
    (simulates_without_noise, conformance.check_that_a_simulation_has_the_law_of_the_two_halves, noisy),
    (claims_less, conformance.check_that_releases_admit_the_mechanism, everything),
    (hides_a_release, conformance.check_that_releases_admit_the_mechanism, everything),
    (forgets_who_adds_noise, conformance.check_that_who_sees_less_learns_no_more, noisy),
    (asks_for_too_little_noise, conformance.check_that_a_budget_is_kept, bounded),
    (agrees_on_less_noise, conformance.check_that_noise_is_agreed_on_as_it_is_simulated, keeping_a_target),
    (charges_half, conformance.check_that_the_cost_is_that_of_the_layout, everything),
    (says_nothing, conformance.check_that_it_can_be_told_about, everything),
)


@pytest.mark.parametrize(
    ("breakage", "check", "name"),
    [
        pytest.param(breakage, check, name, id=f"{breakage.__name__}-{name}")
        for breakage, check, applies in BREAKAGES
        for name, upload in EXAMPLES.items()
        if applies(upload)
    ],
)
def test_a_broken_upload_is_caught(breakage: Callable[[Upload], Upload], check: Check, name: str) -> None:
    upload = EXAMPLES[name]
    with pytest.raises(AssertionError):
        check(breakage(upload), setting_for(upload))
