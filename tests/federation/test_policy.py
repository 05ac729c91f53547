from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation._client_config import ClientConfig, ClientPolicy
from codedfl.federation._config_files import parse_client, parse_federation
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._policy import (
    NoiseLevel,
    UploadRequest,
    check_batch,
    check_prescription,
    check_update,
    check_upload,
    epsilon_of_upload,
    noise_of,
    upload_request,
)
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.incentive import DeviceTraits, Menu, contract_for_reward
from codedfl.privacy import (
    PrivacyAccountant,
    gaussian_epsilon,
    mi_dp_bits,
    noise_variance_for_mi_dp,
    sketch_sensitivity,
)
from codedfl.schemes import make_scheme

LEAST = PrivacyAccountant(coded_samples=10_000, epsilon=1.0, delta=1e-5).noise_variance
SKETCH = {"noise": True, "sketch_rows": 50}


def federation(scheme: str = "scfl", options: dict[str, Any] | None = None, **coding: Any) -> FederationConfig:
    data = {"columns": ["age", "dose"], "target": ["ill"], "task": "classification", "classes": ["no", "yes"]}
    return parse_federation(
        {"devices": ["ward"], "scheme": scheme, "options": options or {}, "data": data, "coding": coding}
    )


def regression(**coding: Any) -> FederationConfig:
    data = {"columns": ["age"], "target": ["dose"], "task": "regression"}
    return parse_federation({"devices": ["ward"], "scheme": "scfl", "data": data, "coding": coding})


def client(policy: dict[str, Any] | None = None, **privacy: Any) -> ClientConfig:
    given = {"name": "ward", "server": "127.0.0.1:9092", "data": "ward.csv", "privacy": privacy, "policy": policy or {}}
    return parse_client(given)


def request(
    key: str = "c0de", rows: int = 10, noise: float = 1.0, labels: float = 1.0, epsilon: float | None = 1.0
) -> UploadRequest:
    return UploadRequest(key, rows, NoiseLevel(noise, labels), epsilon)


@pytest.fixture
def ledger(tmp_path: Path) -> ReleaseLedger:
    return ReleaseLedger(tmp_path / "ledger.jsonl")


def record(ledger: ReleaseLedger, kind: str = "upload", key: str = "c0de", epsilon: float | None = 1.0) -> None:
    ledger.append(kind, federation="wards", size_bytes=1, digest="ab" * 32, key=key, epsilon=epsilon)


@pytest.mark.parametrize(
    ("policy", "asked", "sentence"),
    [
        (
            {"least_noise_variance": 0.5},
            request(noise=0.1),
            "noise_variance = 0.1 is below policy.least_noise_variance = 0.5 of client.toml: set privacy.noise_variance to 0.5 "
            "or more there, or lower the limit.",
        ),
        (
            {"least_label_noise_variance": 0.5},
            request(labels=0.0),
            "label_noise_variance = 0.0 is below policy.least_label_noise_variance = 0.5 of client.toml: set "
            "privacy.label_noise_variance to 0.5 or more there, or lower the limit.",
        ),
        (
            {"most_coded_rows": 9},
            request(rows=10),
            "coding.coded_samples = 10 is above policy.most_coded_rows = 9 of client.toml: ask for fewer coded samples, or raise "
            "the limit.",
        ),
        (
            {"most_uploads": 0},
            request(),
            "this upload would be number 1 in the ledger, above policy.most_uploads = 0 of client.toml: raise the limit, knowing "
            "that every further upload of the same data reveals more of it.",
        ),
        (
            {"largest_epsilon": 2.0},
            request(epsilon=3.0),
            "epsilon = 3 is above policy.largest_epsilon = 2 of client.toml: set privacy.epsilon to 2 or less, or raise "
            "the limit.",
        ),
        (
            {"largest_epsilon": 2.0},
            request(epsilon=None),
            "epsilon of this upload is unknown, which policy.largest_epsilon = 2 of client.toml does not allow: set "
            "coding.clip_norm, and noise on features and labels, in a classification, or set the limit to 0.",
        ),
    ],
)
def test_an_upload_beyond_the_policy_is_refused(
    ledger: ReleaseLedger, policy: dict[str, Any], asked: UploadRequest, sentence: str
) -> None:
    for stored in (False, True):
        with pytest.raises(InputError) as refusal:
            check_upload(ClientPolicy(**policy), asked, ledger, stored=stored)
        assert str(refusal.value) == sentence


def test_an_upload_at_the_limits_is_allowed(ledger: ReleaseLedger) -> None:
    limits = {
        "least_noise_variance": 1.0,
        "least_label_noise_variance": 1.0,
        "most_coded_rows": 10,
        "largest_epsilon": 1.0,
    }
    check_upload(ClientPolicy(**limits), request(), ledger, stored=False)
    check_upload(ClientPolicy(), request(noise=0.0, labels=0.0, rows=100_000, epsilon=None), ledger, stored=False)


def test_a_second_upload_is_refused_and_a_repetition_is_not(ledger: ReleaseLedger) -> None:
    policy = ClientPolicy(most_uploads=1)
    check_upload(policy, request(), ledger, stored=True)  # stored, but a crash came before it was recorded and sent
    record(ledger)
    check_upload(policy, request(), ledger, stored=True)
    for key, stored in (("beef", False), ("beef", True), ("c0de", False)):
        with pytest.raises(InputError, match=r"number 2 in the ledger, above policy\.most_uploads = 1"):
            check_upload(policy, request(key), ledger, stored=stored)
    check_upload(ClientPolicy(most_uploads=2), request("beef"), ledger, stored=False)


def test_losses_of_uploads_add_up(ledger: ReleaseLedger) -> None:
    policy = ClientPolicy(most_uploads=9, largest_epsilon=2.5)
    record(ledger, epsilon=1.5)
    check_upload(policy, request("beef", epsilon=1.0), ledger, stored=False)
    record(ledger, "update", epsilon=None)
    check_upload(policy, request("beef", epsilon=1.0), ledger, stored=False)
    with pytest.raises(InputError) as refusal:
        check_upload(policy, request("beef", epsilon=1.25), ledger, stored=False)
    assert str(refusal.value) == (
        "epsilon = 2.75 (1.5 by earlier uploads) is above policy.largest_epsilon = 2.5 of client.toml: set privacy.epsilon to 1 "
        "or less, or raise the limit."
    )
    record(ledger, key="beef", epsilon=1.0)
    with pytest.raises(InputError, match=r"of client\.toml: raise the limit\.$"):
        check_upload(policy, request("dead", epsilon=0.5), ledger, stored=False)
    record(ledger, key="dead", epsilon=None)
    with pytest.raises(InputError, match="epsilon of an earlier upload in the ledger is unknown"):
        check_upload(policy, request("face"), ledger, stored=False)


def test_updates_are_counted_over_the_lifetime_of_the_ledger(ledger: ReleaseLedger) -> None:
    for _ in range(2):
        check_update(ClientPolicy(most_rounds=2), ledger)
        record(ledger, "update")
    with pytest.raises(InputError) as refusal:
        check_update(ClientPolicy(most_rounds=2), ReleaseLedger(ledger.path))
    assert str(refusal.value) == (
        "this update would be number 3 in the ledger, above policy.most_rounds = 2 of client.toml: raise the limit, or leave "
        "this federation."
    )


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (
            {"features": ["age"]},
            "data.columns asks for dose, which policy.features of client.toml does not allow: add it there, or leave this "
            "federation.",
        ),
        (
            {"labels": ["healthy"]},
            "data.target asks for ill, which policy.labels of client.toml does not allow: add it there, or leave this "
            "federation.",
        ),
    ],
)
def test_columns_that_are_not_allowed_are_refused(policy: dict[str, Any], sentence: str) -> None:
    agreed = federation()
    with pytest.raises(InputError) as refusal:
        check_prescription(ClientPolicy(**policy), agreed, agreed.prescription())
    assert str(refusal.value) == sentence


def test_a_prescription_that_both_have_is_accepted() -> None:
    agreed, other = federation(), federation(noise_variance=0.2)
    check_prescription(ClientPolicy(), agreed, agreed.prescription())
    check_prescription(ClientPolicy(features=("dose", "age", "x"), labels=("ill",)), agreed, agreed.prescription())
    with pytest.raises(
        InputError, match=r"prescription = .* is not that of this device's federation\.toml, .*: compare the two"
    ):
        check_prescription(ClientPolicy(), agreed, other.prescription())


def test_noise_is_that_of_the_federation_unless_the_device_has_its_own() -> None:
    agreed = federation(noise_variance=0.3, label_noise_variance=0.2)
    assert noise_of(client(), agreed, samples=10) == NoiseLevel(0.3, 0.2)
    assert noise_of(client(noise_variance=0.0), agreed, samples=10) == NoiseLevel(0.0, 0.2)
    assert noise_of(client(label_noise_variance=0.7), agreed, samples=10) == NoiseLevel(0.3, 0.7)


def test_a_sketch_has_noise_if_the_federation_or_the_device_says_so() -> None:
    quiet, noisy = (federation("ccfl", {"noise": noise}, noise_variance=0.3) for noise in (False, True))
    assert noise_of(client(), quiet, samples=10) == NoiseLevel(0.0, 0.0)
    assert noise_of(client(), noisy, samples=10) == NoiseLevel(0.3, 0.0)
    assert noise_of(client(noise_variance=0.4), quiet, samples=10) == NoiseLevel(0.4, 0.0)


def test_a_scheme_without_upload_adds_no_noise_and_loses_nothing_by_it() -> None:
    level = noise_of(client(epsilon=1.0), federation("fedavg"), samples=10)
    assert level == NoiseLevel(0.0, 0.0)
    assert epsilon_of_upload(federation("fedavg"), level, samples=10) == 0.0


@pytest.mark.parametrize("scheme", ["scfl", "dp-cfl", "one-shot"])
def test_the_loss_of_coded_data_is_that_of_the_accountant(scheme: str) -> None:
    agreed = federation(scheme, coded_samples=200, clip_norm=1.5)
    found = epsilon_of_upload(agreed, NoiseLevel(30.0, 20.0), samples=10, delta=1e-4)
    accountant = PrivacyAccountant(
        coded_samples=200, noise_variance=30.0, delta=1e-4, norm_bound=1.5, label_noise_variance=20.0
    )
    assert found == accountant.epsilon


@pytest.mark.parametrize("samples", [50, 51])
def test_the_loss_of_a_sketch_is_that_of_its_gaussian_mechanisms(samples: int) -> None:
    agreed = federation("ccfl", SKETCH, clip_norm=1.5)
    features, labels = sketch_sensitivity(1.5, 1.0, some_rows=samples > 50)
    found = epsilon_of_upload(agreed, NoiseLevel(30.0, 20.0), samples=samples, delta=1e-4)
    assert found == pytest.approx(gaussian_epsilon(math.sqrt(features**2 / 30 + labels**2 / 20), 1e-4), rel=1e-12)


@pytest.mark.parametrize("scheme", ["scfl", "ccfl"])
def test_what_leaves_no_bound(scheme: str) -> None:
    clipped = federation(scheme, clip_norm=1.0)
    assert epsilon_of_upload(clipped, NoiseLevel(1.0, 1.0), samples=10) is not None
    assert epsilon_of_upload(clipped, NoiseLevel(0.0, 1.0), samples=10) is None
    assert epsilon_of_upload(clipped, NoiseLevel(1.0, 0.0), samples=10) is None
    assert epsilon_of_upload(federation(scheme), NoiseLevel(1.0, 1.0), samples=10) is None
    assert epsilon_of_upload(regression(clip_norm=1.0), NoiseLevel(1.0, 1.0), samples=10) is None


@given(
    st.sampled_from(["scfl", "one-shot", "ccfl"]),
    st.floats(0.01, 50),
    st.sampled_from([1e-3, 1e-5, 1e-8]),
    st.sampled_from([0.1, 1.0, 7.0]),
    st.sampled_from([1, 50, 1000]),
)
def test_a_budget_is_achieved(scheme: str, epsilon: float, delta: float, bound: float, samples: int) -> None:
    agreed = federation(scheme, SKETCH if scheme == "ccfl" else {}, clip_norm=bound, coded_samples=500)
    level = noise_of(client(epsilon=epsilon, delta=delta), agreed, samples=samples)
    assert level is not None
    # A root to 1e-14, through two functions that are that smooth; the same slack as in policy.largest_epsilon.
    assert epsilon_of_upload(agreed, level, samples=samples, delta=delta) == pytest.approx(epsilon, rel=1e-9)


def test_labels_use_half_of_a_budget_unless_they_have_noise_of_their_own() -> None:
    agreed = federation(coded_samples=500, clip_norm=2.0)
    level = noise_of(client(epsilon=1.0), agreed, samples=10)
    assert level is not None
    assert 2.0**2 / level.noise_variance == pytest.approx(1 / level.label_noise_variance)
    fixed = 2 * level.label_noise_variance
    accountant = PrivacyAccountant(
        coded_samples=500, epsilon=1.0, delta=1e-5, norm_bound=2.0, label_noise_variance=fixed
    )
    by_device = noise_of(client(epsilon=1.0, label_noise_variance=fixed), agreed, samples=10)
    by_federation = noise_of(
        client(epsilon=1.0), federation(coded_samples=500, clip_norm=2.0, label_noise_variance=fixed), samples=10
    )
    by_policy = noise_of(client({"least_label_noise_variance": fixed}, epsilon=1.0), agreed, samples=10)
    assert by_device == by_federation == by_policy
    assert by_device is not None
    assert by_device.label_noise_variance == fixed
    assert by_device.noise_variance == pytest.approx(accountant.noise_variance, rel=1e-9)


def test_a_budget_does_not_lower_the_least_noise() -> None:
    agreed = federation(clip_norm=1.0)
    level = noise_of(client({"least_noise_variance": 1e9}, epsilon=1.0), agreed, samples=10)
    assert level is not None
    assert level.noise_variance == 1e9


def test_a_budget_solved_for_passes_the_same_budget_as_a_limit(ledger: ReleaseLedger) -> None:
    for scheme in ("scfl", "ccfl"):
        for epsilon in (0.1, 1.0, 3.0, 17.3):
            agreed, own = federation(scheme, clip_norm=1.0), client({"largest_epsilon": epsilon}, epsilon=epsilon)
            level = noise_of(own, agreed, samples=10)
            assert level is not None
            asked = upload_request("c0de", own, agreed, level, samples=10)
            check_upload(own.policy, asked, ledger, stored=False)
            assert asked.coded_rows == (0 if scheme == "ccfl" else 1000)


@pytest.mark.parametrize(
    ("own", "agreed", "sentence"),
    [
        (
            client(epsilon=1.0),
            federation(),
            "privacy.epsilon = 1 cannot be kept, as coding.clip_norm = 0 leaves samples unbounded: set it in federation.toml.",
        ),
        (
            client(epsilon=1.0),
            regression(clip_norm=1.0),
            "privacy.epsilon = 1 cannot be kept, as data.task = 'regression' leaves labels unbounded: give "
            "privacy.noise_variance instead.",
        ),
        (
            client(epsilon=1.0, label_noise_variance=0.0),
            federation(clip_norm=1.0, coded_samples=10_000),
            "privacy.label_noise_variance = 0 cannot keep privacy.epsilon = 1, as the labels alone use more: raise it above "
            f"{LEAST:.6g}, or leave it out to have it solved for.",
        ),
    ],
)
def test_budgets_that_nothing_keeps_are_refused(own: ClientConfig, agreed: FederationConfig, sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        noise_of(own, agreed, samples=10)
    assert str(refusal.value) == sentence


def test_a_budget_that_needs_absurd_noise_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"privacy\.epsilon = 1 needs a noise variance of .*, beyond 1e\+30: allow a larger"
    ):
        noise_of(client(epsilon=1.0), federation(clip_norm=1e15), samples=10)


CONTRACT = contract_for_reward(DeviceTraits([1.0, 1.1, 1.4, 2.0]), total_reward=100.0, coded_samples=1000)


@given(st.floats(0.01, 50), st.sampled_from([0.0, 0.01, 1.0, 100.0]))
def test_a_device_picks_the_item_that_is_best_for_it(sensitivity: float, least: float) -> None:
    menu, best, worth = CONTRACT.menu, None, 0.0
    for item, (bits, reward) in enumerate(zip(menu.mi_dp_bits, menu.reward, strict=True)):
        noise = noise_variance_for_mi_dp(float(bits), 1000)
        if noise >= least and reward - sensitivity * bits > worth:
            best, worth = item, reward - sensitivity * bits
    level = noise_of(
        client({"least_noise_variance": least}, sensitivity=sensitivity), federation(), samples=10, menu=menu
    )
    if level is None:
        assert best is None
        return
    # If nothing is worth more than 0, the device may still be indifferent, and then it takes part.
    assert level.item is not None
    bits, reward = float(menu.mi_dp_bits[level.item]), float(menu.reward[level.item])
    assert reward - sensitivity * bits == pytest.approx(worth, rel=1e-9, abs=1e-9 * reward)
    assert mi_dp_bits(1000, level.noise_variance) == pytest.approx(bits, rel=1e-9)
    assert level.noise_variance >= least


def test_every_device_of_a_contract_picks_its_own_item() -> None:
    for sensitivity, noise in zip(CONTRACT.sensitivity, CONTRACT.noise_variance, strict=True):
        level = noise_of(client(sensitivity=float(sensitivity)), federation(), samples=10, menu=CONTRACT.menu)
        assert level is not None
        assert level.noise_variance == pytest.approx(noise, rel=1e-9)


def test_who_wants_more_than_is_offered_stays_out() -> None:
    assert noise_of(client(sensitivity=1e6), federation(), samples=10, menu=CONTRACT.menu) is None


def test_without_a_contract_or_a_sensitivity_nothing_is_picked() -> None:
    agreed = federation(noise_variance=0.3)
    assert noise_of(client(sensitivity=1.0), agreed, samples=10) == NoiseLevel(0.3, 0.0)
    assert noise_of(client(), agreed, samples=10, menu=CONTRACT.menu) == NoiseLevel(0.3, 0.0)


def test_a_budget_bounds_what_is_picked() -> None:
    agreed, offered = federation(clip_norm=1.0), Menu(np.array([9.0, 0.001]), np.array([100.0, 50.0]))
    level = noise_of(client(epsilon=1.0, sensitivity=0.1), agreed, samples=10, menu=offered)
    assert level is not None
    assert level.item == 1
    epsilon = epsilon_of_upload(agreed, level, samples=10)
    assert epsilon is not None
    assert epsilon <= 1.0


def test_the_least_noise_is_not_undercut_by_rounding(ledger: ReleaseLedger) -> None:
    rng = np.random.default_rng(0)
    for least in rng.uniform(0.01, 100, 200).tolist():
        offered = Menu(np.array([mi_dp_bits(1000, least)]), np.array([100.0]))
        own = client({"least_noise_variance": least}, sensitivity=0.001)
        level = noise_of(own, federation(), samples=10, menu=offered)
        assert level is not None
        check_upload(own.policy, UploadRequest("c0de", 1000, level, None), ledger, stored=False)


@pytest.mark.parametrize(
    ("bits", "rewards", "message"),
    [
        ([], [], "mi_dp_bits of the offered contract does not fall"),
        ([1.0, 2.0], [1.0, 2.0], "mi_dp_bits of the offered contract does not fall"),
        ([2.0, 1.0], [1.0], "reward of the offered contract is not a list of positive numbers"),
        ([math.nan], [1.0], "mi_dp_bits of the offered contract is not a list"),
        ([1.0], [math.inf], "reward of the offered contract is not a list"),
        ([-1.0], [1.0], "mi_dp_bits of the offered contract is not a list"),
        ([[1.0]], [1.0], "mi_dp_bits of the offered contract is not a list"),
    ],
)
def test_a_contract_that_is_none_is_refused(bits: Any, rewards: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise_of(client(sensitivity=1.0), federation(), samples=10, menu=Menu(np.array(bits), np.array(rewards)))


def test_a_contract_says_nothing_about_sketches() -> None:
    upload = make_scheme("ccfl").upload
    assert upload is not None
    assert upload.name == "subspace"
    with pytest.raises(InputError, match="scheme = 'ccfl' uploads sketches"):
        noise_of(client(sensitivity=1.0), federation("ccfl"), samples=10, menu=CONTRACT.menu)
    factor = federation("ccfl", {"upload": "factor"})
    level = noise_of(client(sensitivity=1.0), factor, samples=10, menu=CONTRACT.menu)
    assert level is not None
    assert level.item == 0


def test_an_update_on_very_few_rows_is_refused() -> None:
    policy = ClientPolicy(least_batch=8)
    check_batch(policy, 8, samples=100)
    check_batch(policy, 3, samples=3)  # all that there are
    with pytest.raises(
        InputError, match=r"^batch_size = 7 is below policy\.least_batch = 8 of client\.toml: .*lower the limit\.$"
    ):
        check_batch(policy, 7, samples=100)
