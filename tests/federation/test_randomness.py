from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from codedfl.federation._randomness import DeviceRandomness, OperatingSystemRandomness
from codedfl.federation._vault import Vault
from codedfl.identity import identity
from codedfl.privacy import ExactNoise
from codedfl.streams import Streams


@pytest.fixture
def randomness(tmp_path: Path) -> DeviceRandomness:
    return OperatingSystemRandomness(Vault(tmp_path))


def test_every_upload_has_a_generator_of_its_own(randomness: DeviceRandomness) -> None:
    draws = {randomness.encoding().rng.bytes(32) for _ in range(100)}
    assert len(draws) == 100


def test_a_generator_has_384_bits_of_the_operating_system(
    randomness: DeviceRandomness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def token_bytes(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    monkeypatch.setattr("secrets.token_bytes", token_bytes)
    state = randomness.encoding().rng.bit_generator.state["state"]
    assert asked == [48]
    assert state["key"].tobytes() + state["counter"].tobytes() == bytes(range(48))


def test_noise_is_made_of_bytes_of_the_operating_system(randomness: DeviceRandomness) -> None:
    noise = randomness.encoding()
    assert isinstance(noise, ExactNoise)
    assert noise.random_bytes is os.urandom
    before = noise.rng.bit_generator.state["state"]["counter"].tolist()
    assert noise.added(np.zeros(5), 1.0).any()
    assert noise.rng.bit_generator.state["state"]["counter"].tolist() == before


def test_generators_are_stored_nowhere(randomness: DeviceRandomness, tmp_path: Path) -> None:
    randomness.encoding().rng.random()
    assert list(tmp_path.iterdir()) == []


def test_draws_are_standard_normal(randomness: DeviceRandomness) -> None:
    draws = randomness.encoding().rng.standard_normal(100_000)
    # Six standard errors, since the seed cannot be fixed: a failure every 500 million runs.
    assert abs(draws.mean()) < 6 / np.sqrt(draws.size)
    assert abs(draws.var() - 1) < 6 * np.sqrt(2 / draws.size)


def test_batches_go_on_after_a_restart(tmp_path: Path) -> None:
    before = OperatingSystemRandomness(Vault(tmp_path)).batches()
    after = OperatingSystemRandomness(Vault(tmp_path)).batches()
    assert before == after
    assert before.at("batch", round=3).random() == after.at("batch", round=3).random()
    assert OperatingSystemRandomness(Vault(tmp_path / "other")).batches() != before


def test_batches_are_the_streams_of_their_seed(randomness: DeviceRandomness) -> None:
    secret = randomness.batches()
    public = Streams(secret.seed)
    assert secret.at("batch", device=1, round=2).random() == public.at("batch", device=1, round=2).random()
    assert secret.child("inner").seed == public.child("inner").seed
    assert identity(secret) == identity(randomness.batches())


def test_no_seed_is_shown(randomness: DeviceRandomness, caplog: pytest.LogCaptureFixture) -> None:
    streams, noise = randomness.batches(), randomness.encoding()
    with caplog.at_level(logging.INFO):
        logging.getLogger("device").info(
            "%s %r %s %r %r %s", randomness, randomness, streams, streams, streams.child("inner"), noise
        )
    assert "OperatingSystemRandomness()" in caplog.text
    assert str(streams.seed) not in caplog.text
    assert str(streams.child("inner").seed) not in caplog.text
    for word in noise.rng.bit_generator.state["state"]["key"].tolist():
        assert str(word) not in caplog.text
