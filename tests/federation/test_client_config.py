"""Configurations of a device that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from codedfl.errors import InputError
from codedfl.federation._config_files import parse_client
from tests.federation.configs import CLIENT

CLIENT_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"nmae": "x"}, "nmae: there is no such key, did you mean name\\?$"),
    ({"policy": {"most_round": 3}}, "policy.most_round: there is no such key, did you mean policy.most_rounds\\?$"),
    ({"name": "../ward"}, 'name = "../ward" is not possible: it must have 1 to 64 characters'),
    ({"server": "https://example.org"}, 'server = "https://example.org" is not possible: it must be a host and a port'),
    (
        {"data": "ward.xls"},
        'data = "ward.xls" is not possible: it must be a file whose name ends in .csv, .tsv, .npz or .parquet.',
    ),
    ({"state": ""}, 'state = "" is not possible: it must be a non-empty string.'),
    ({"insecure": "perhaps"}, 'insecure = "perhaps" is not possible: it must be true or false.'),
    ({"privacy": {"delta": 1}}, r"privacy.delta = 1 is not possible: it must be a finite number \(above 0, below 1\)."),
    (
        {"privacy": {"epsilon": 1.0, "noise_variance": 0.5}},
        "privacy.epsilon = 1.0 is not possible beside privacy.noise_variance = 0.5, .*: leave one of them out.",
    ),
    (
        {"privacy": {"noise_variance": -1}},
        r"privacy.noise_variance = -1 is not possible: it must be a finite number \(0 or more, at most 1e\+30\).$",
    ),
    (
        {"policy": {"most_uploads": -1}},
        r"policy.most_uploads = -1 is not possible: it must be an integer \(0 or more, ",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), CLIENT_REFUSALS)
def test_a_wrong_client_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}") as refused:
        parse_client(CLIENT | values)
    assert "\n" not in str(refused.value)
    assert str(refused.value)[-1] in ".?"
