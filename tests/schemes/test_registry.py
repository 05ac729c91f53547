from __future__ import annotations

import pytest

from codedfl.errors import InputError
from codedfl.schemes import SCHEMES, make_scheme


def test_every_scheme_carries_the_name_that_it_is_registered_under() -> None:
    for name in SCHEMES:
        assert make_scheme(name).name == name


def test_options_reach_the_scheme() -> None:
    assert make_scheme("fedavg", {"batch": 7}).device.batch == 7  # type: ignore[attr-defined]
    assert make_scheme("scfl", {"device_weight": 0.3}).aggregation.device_weight == 0.3
    assert make_scheme("codedfedl", {"noise": True}).upload.noise  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("sclf", {}, "Did you mean 'scfl'"),
        ("zzz", {}, "there is no 'zzz'"),
        ("scfl", {"bach": 3}, "options.scfl.bach"),
        ("scfl", {"batch": "big"}, "options.scfl.batch"),
        ("scfl", {"batch": 0}, "batch = 0 must be 1 or more"),
        ("scfl", {"device_weight": 1.5}, "device_weight = 1.5 must be between 0 and 1"),
        ("codedfedl", {"mini_batches": 0}, "mini_batches = 0 must be 1 or more"),
        ("codedfedl", {"deadline": "soon"}, "options.codedfedl.deadline"),
        ("dp-cfl", {"noise": True}, "options.dp-cfl.noise"),
        ("scfl", {"upload": "pigeon"}, "options.scfl.upload"),
        ("scfl", {"weight_cap": 0.5}, "weight_cap = 0.5 must be a finite number, 1 or more"),
        ("momentum", {"momentum": 1.0}, "momentum = 1.0 must be 0 or more and below 1"),
        ("fed3r", {"ridge": -1.0}, "ridge = -1.0 must be"),
        ("one-shot", {"ridge_share": -0.1}, "ridge_share = -0.1 must be"),
        ("ssp", {"ridge_share": -0.1}, "ridge_share = -0.1 must be"),
        ("ssp", {"method": "magic"}, "options.ssp.method"),
        ("ihm", {"rounds": 0}, "options.ihm.rounds"),
        ("ihm", {"budget_share": 1.0}, "budget_share = 1.0 must lie between 0 and 1"),
        ("scfl-private", {"budget_share": 0.0}, "options.scfl-private.budget_share"),
        ("scfl-private", {"device_weight": 1.0}, "device_weight = 1.0 must lie between 0 and 1"),
    ],
)
def test_a_wrong_name_option_or_value_is_refused_in_one_sentence(
    name: str, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_scheme(name, options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
