from __future__ import annotations

from dataclasses import replace

import pytest

from codedfl.experiment import Comparison, run
from codedfl.schemes import PAPER_SCHEMES
from tests.support import StopAfter, small_config


def test_runs_are_found_by_the_name_of_their_scheme(comparison: Comparison) -> None:
    for name in PAPER_SCHEMES:
        assert comparison[name].scheme.name == name
        assert comparison[name].status == "completed"


def test_a_scheme_that_did_not_run_is_a_key_error(comparison: Comparison) -> None:
    with pytest.raises(KeyError, match="'sclf' is not one of the schemes that ran: fedavg, cfl-fb"):
        comparison["sclf"]
    with pytest.raises(KeyError, match="none"):
        replace(comparison, results=())["scfl"]


def test_a_comparison_without_all_of_its_schemes_was_interrupted(comparison: Comparison) -> None:
    assert not comparison.interrupted
    assert replace(comparison, results=comparison.results[:-1]).interrupted
    assert run(small_config(), callbacks=(StopAfter(3),)).interrupted


def test_the_setting_is_that_of_the_configuration(comparison: Comparison) -> None:
    assert comparison.config.data.devices == comparison.setting.federation.devices == 6
    assert comparison.wall_time_s > 0
