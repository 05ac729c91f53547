from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import InputError
from codedfl.experiment import run
from codedfl.tracking import MLflowCallback, tracker_from
from codedfl.tracking._services import IMPATIENCE
from tests.support import small_config

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
"""Of MLflow's own modules, when they are imported."""


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.slow
@pytest.mark.usefixtures("no_network")
def test_mlflow_reads_back_what_was_trained(tmp_path: Path) -> None:
    from mlflow import MlflowClient
    from mlflow.telemetry.utils import is_telemetry_disabled

    with tracker_from(f"mlflow:{tmp_path / 'my runs'}") as tracker:
        comparison = run(small_config(), callbacks=(tracker,))
    assert is_telemetry_disabled()
    client = MlflowClient(tracking_uri=(tmp_path / "my runs").as_uri())
    experiment = client.get_experiment_by_name("codedfl")
    assert experiment is not None
    runs: dict[str, Any] = {
        each.data.tags["codedfl.scheme"]: each for each in client.search_runs([experiment.experiment_id])
    }
    assert set(runs) == {"fedavg", "scfl"}
    for result in comparison.results:
        found = runs[result.scheme.name]
        assert (found.info.run_name, found.info.status) == (result.scheme.title, "FINISHED")
        assert (found.data.params["training.rounds"], found.data.params["data.devices"]) == ("12", "6")
        assert found.data.metrics["everything_charged_s"] == result.final.everything_charged_s
        history = client.get_metric_history(found.info.run_id, "score")
        assert sorted((each.step, each.value) for each in history) == [
            (point.round, point.score) for point in result.curve
        ]
        assert found.data.tags["codedfl.privacy.covers"] == comparison.privacy(result.scheme.name)["covers"]
        assert found.data.tags["codedfl.privacy.epsilon"] == "no bound"
    again = MLflowCallback(tmp_path / "my runs")
    assert again.experiment_id == experiment.experiment_id


@pytest.mark.slow
def test_a_uri_that_mlflow_cannot_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for uri in (str(tmp_path / "file" / "runs"), "nonsense://host"):
        with pytest.raises(InputError, match="MLflow cannot use tracking_uri"):
            MLflowCallback(uri)


@pytest.mark.slow
def test_a_server_that_is_not_there_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in IMPATIENCE:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening, so that connections are refused
        before = dict(os.environ)
        with pytest.raises(InputError, match="MLflow cannot use tracking_uri"):
            MLflowCallback(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert {name: value for name, value in os.environ.items() if "HTTP_REQUEST" in name} == {
        name: value for name, value in before.items() if "HTTP_REQUEST" in name
    }


@pytest.mark.slow
def test_only_the_first_call_is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    retries, timeout = IMPATIENCE
    monkeypatch.delenv(retries, raising=False)
    monkeypatch.setenv(timeout, "77")
    seen: dict[str, tuple[str | None, str | None]] = {}

    class Client:
        def get_experiment_by_name(self, name: str) -> None:  # noqa: ARG002
            seen["look up"] = os.environ.get(retries), os.environ.get(timeout)

        def create_experiment(self, name: str) -> str:  # noqa: ARG002
            seen["create"] = os.environ.get(retries), os.environ.get(timeout)
            return "1"

    monkeypatch.setattr("codedfl.tracking._services._client", lambda uri: Client())  # noqa: ARG005
    assert MLflowCallback("http://127.0.0.1:1").experiment_id == "1"
    assert seen == {"look up": (IMPATIENCE[retries], "77"), "create": (None, "77")}


def test_without_the_extra_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.tracking._services.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(InputError, match=r"pip install \"codedfl\[mlflow\]\""):
        MLflowCallback("mlruns")
