from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import CLI_SMALL, Cli


@pytest.mark.slow
def test_a_run_is_recorded_where_asked(cli: Cli) -> None:
    result = cli("run", *CLI_SMALL, "--out", "out", "--track", "tensorboard:logs")
    assert result.code == 0, result.err
    assert sorted(path.name for path in Path("logs").iterdir()) == ["fedavg", "scfl"]
    assert list(Path("logs/fedavg").glob("events.out.tfevents.*"))


def test_a_record_that_is_not_possible_is_refused_before_anything_is_written(cli: Cli) -> None:
    result = cli("run", *CLI_SMALL, "--out", "out", "--track", "notebook:logs")
    assert result.code == 2
    assert "notebook:logs" in result.err
    assert not Path("out").exists()
