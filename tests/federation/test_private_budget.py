from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm

from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._private_update import check_private_release, require_as_agreed
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.privacy import GaussianMechanism, gaussian_epsilon
from tests.federation.configs import CLASSIFICATION, CLIENT, federation, total_epsilon
from tests.federation.support import upload_of

EPSILON, DELTA = 2.0, 1e-5


def private(**changes: Any) -> FederationConfig:
    values: dict[str, Any] = {"name": "wards", "scheme": "dp-gd", "data": CLASSIFICATION, "coding": {"clip_norm": 1.5}}
    return federation(**values | {"privacy": {"epsilon": EPSILON, "delta": DELTA}} | changes)


def device(**changes: Any) -> ClientConfig:
    return ClientConfig(**CLIENT | changes)


def whole_mu() -> float:
    """Return mu of all releases together, by bisection on the definition of delta."""

    def delta(mu: float) -> float:
        return float(norm.cdf(mu / 2 - EPSILON / mu) - math.exp(EPSILON) * norm.cdf(-mu / 2 - EPSILON / mu))

    low, high = 0.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) < DELTA else (low, middle)
    return low


@pytest.fixture
def ledger(tmp_path: Path) -> ReleaseLedger:
    return ReleaseLedger(tmp_path / "ledger.jsonl")


def released(ledger: ReleaseLedger, mu: float, name: str = "wards", digest: str = "ab" * 32) -> None:
    ledger.append(
        "update",
        federation=name,
        size_bytes=1,
        digest=digest,
        key="c0de",
        epsilon=gaussian_epsilon(mu, DELTA),
        mechanism=gaussian(mu),
    )


def gaussian(mu: float) -> GaussianMechanism:
    return GaussianMechanism(1 / mu)


def test_the_mean_has_three_per_cent_of_the_budget() -> None:
    agreed = upload_of(private()).agreed_noise(private().terms)
    assert agreed is not None
    assert agreed.mechanism.mu == pytest.approx(math.sqrt(0.03) * whole_mu(), rel=1e-6)
    assert agreed.noise_variance == pytest.approx((1.5 / (math.sqrt(0.03) * whole_mu())) ** 2, rel=1e-6)
    assert agreed.label_noise_variance == 0


@pytest.mark.parametrize(
    ("privacy", "sentence"),
    [
        ({"noise_variance": 1.0}, "privacy.noise_variance = 1 of client.toml has no meaning .* leave it out."),
        (
            {"label_noise_variance": 2.0},
            "privacy.label_noise_variance = 2 of client.toml .* scheme = 'dp-gd', .* leave it",
        ),
        (
            {"epsilon": 1.0},
            "privacy.epsilon = 1 with delta = 1e-05 of client.toml is stricter than the epsilon = 2 with delta = 1e-05 of "
            "federation.toml: leave this federation, or agree on less.",
        ),
        ({"epsilon": 2.0, "delta": 1e-6}, "privacy.epsilon = 2 with delta = 1e-06 of client.toml is stricter"),
    ],
)
def test_a_device_that_wants_more_privacy_stays_away(privacy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        require_as_agreed(device(privacy=privacy), private())


def test_a_server_that_skips_the_greeting_gets_nothing_either(ledger: ReleaseLedger) -> None:
    check_private_release(device(privacy={"epsilon": 2.0}), private(), ledger, gaussian(0.1))
    for privacy in ({"epsilon": 0.5}, {"epsilon": 2.0, "delta": 1e-6}):
        with pytest.raises(InputError, match="is stricter than the epsilon = 2"):
            check_private_release(device(privacy=privacy), private(), ledger, gaussian(0.1))


def test_what_other_schemes_sent_to_a_federation_of_that_name_counts(ledger: ReleaseLedger) -> None:
    ledger.append("upload", federation="wards", size_bytes=1, digest="ef" * 32, key="beef", epsilon=1.0)
    most = gaussian_epsilon(0.7 * whole_mu(), DELTA)
    check_private_release(device(), private(), ledger, gaussian(whole_mu() / 3))
    with pytest.raises(InputError, match=rf"epsilon = {1 + most:.6g} would be above privacy\.epsilon = 2"):
        check_private_release(device(), private(), ledger, gaussian(0.7 * whole_mu()))
    ledger.append("update", federation="wards", size_bytes=1, digest="ab" * 32)
    with pytest.raises(
        InputError, match=r"a release to name = 'wards' .* unknown, .* give this federation another name\."
    ):
        check_private_release(device(), private(), ledger, gaussian(1e-6))
    check_private_release(device(), private(name="others"), ledger, gaussian(1e-6))


def test_a_device_that_wants_no_more_takes_part() -> None:
    for privacy in ({"epsilon": 2.0}, {"epsilon": 8.0}, {"delta": 1e-6}):
        require_as_agreed(device(privacy=privacy), private())


def test_what_was_agreed_on_can_be_used_up_and_no_more(ledger: ReleaseLedger) -> None:
    each = whole_mu() / math.sqrt(8)
    for number in range(8):
        check_private_release(device(), private(), ledger, gaussian(each))
        released(ledger, each, digest=f"{number:064x}")
    assert total_epsilon(ledger, DELTA) == pytest.approx(EPSILON, rel=1e-6)
    with pytest.raises(
        InputError, match=r"epsilon = 2\.1.* would be above privacy\.epsilon = 2 of federation.toml"
    ) as no:
        check_private_release(device(), private(), ledger, gaussian(each))
    assert str(no.value).endswith("nothing more is sent to this federation.")
    check_private_release(device(), private(name="others"), ledger, gaussian(each))


def test_a_single_release_may_not_exceed_it_either(ledger: ReleaseLedger) -> None:
    check_private_release(device(), private(), ledger, gaussian(whole_mu() * (1 - 1e-9)))
    with pytest.raises(InputError, match=r"would be above privacy\.epsilon = 2"):
        check_private_release(device(), private(), ledger, gaussian(whole_mu() * 1.001))


def test_the_devices_own_limit_counts_everything_in_its_ledger(ledger: ReleaseLedger) -> None:
    limited, half = device(policy={"largest_epsilon": 3.0}), whole_mu() / 2
    released(ledger, half, name="others")
    ledger.append("upload", federation="rows", size_bytes=1, digest="ef" * 32, key="beef", epsilon=0.5)
    # 0.5 for the upload, and two Gaussian mechanisms that compose exactly.
    together = 0.5 + gaussian_epsilon(math.sqrt(2) * half, DELTA)
    assert 1.5 < together < 3.0
    check_private_release(limited, private(), ledger, gaussian(half))
    released(ledger, 2 * half, name="others", digest="cd" * 32)
    total = 0.5 + gaussian_epsilon(math.sqrt(6) * half, DELTA)
    with pytest.raises(InputError) as no:
        check_private_release(limited, private(), ledger, gaussian(half))
    assert str(no.value) == (
        f"epsilon = {total:.6g} of everything in the ledger would be above policy.largest_epsilon = 3 of client.toml: raise "
        "the limit, or leave this federation."
    )
    check_private_release(device(), private(), ledger, gaussian(half))


def test_the_devices_own_limit_is_at_its_own_delta(ledger: ReleaseLedger) -> None:
    mu = whole_mu() * 0.9
    strict = device(policy={"largest_epsilon": 2.0}, privacy={"delta": 1e-9})
    check_private_release(device(policy={"largest_epsilon": 2.0}), private(), ledger, gaussian(mu))
    with pytest.raises(InputError, match=f"epsilon = {gaussian_epsilon(mu, 1e-9):.6g} of everything"):
        check_private_release(strict, private(), ledger, gaussian(mu))


def test_a_limit_cannot_be_kept_after_a_release_that_is_not_known(ledger: ReleaseLedger) -> None:
    ledger.append("update", federation="others", size_bytes=1, digest="ef" * 32)
    check_private_release(device(), private(), ledger, gaussian(0.1))
    with pytest.raises(
        InputError, match=r"epsilon of an earlier release in the ledger is unknown, which policy\.largest"
    ):
        check_private_release(device(policy={"largest_epsilon": 9.0}), private(), ledger, gaussian(0.1))
