from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codedfl._messages import no_such_key
from codedfl.config import MAX_COUNT, Section, option_defaults
from codedfl.errors import InputError
from codedfl.experiment import Config, parse_config
from codedfl.schemes import DEFAULT_SCHEMES, SCHEMES
from codedfl.streams import MAX_SEED
from tests.support import refusal_of

SECTIONS = {name: item.default for name, item in Config.model_fields.items() if isinstance(item.default, Section)}
FIELDS = [name for name in Config.model_fields if name not in SECTIONS]
PLACES = [(name,) for name in FIELDS] + [
    (section, field) for section, default in SECTIONS.items() for field in type(default).model_fields
]


def refusal(place: str, value: object) -> str:
    values: dict[str, Any] = {}
    inner = values
    *parents, last = place.split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    with pytest.raises(InputError) as error:
        parse_config(values)
    return str(error.value)


def test_the_defaults_are_the_embedded_experiment() -> None:
    config = Config()
    assert parse_config({}) == config
    assert config.schemes == DEFAULT_SCHEMES
    assert (config.data.dataset, config.data.devices, config.fleet.straggler_ratio) == ("digits", 20, 0.3)


def test_every_field_has_a_description() -> None:
    for section in (Config(), *SECTIONS.values()):
        for name, item in type(section).model_fields.items():
            if name not in SECTIONS:
                assert item.description, name
                assert "\n" not in item.description
    for default in SECTIONS.values():
        assert type(default).__doc__


def test_a_single_string_is_a_list_of_one() -> None:
    config = parse_config({"schemes": "scfl", "data": {"target": "z", "drop": "name"}})
    assert config == parse_config({"schemes": ["scfl"], "data": {"target": ["z"], "drop": ["name"]}})
    assert (config.schemes, config.data.target, config.data.drop) == (("scfl",), ("z",), ("name",))
    assert refusal("schemes", "sfcl").startswith("schemes: there is no 'sfcl'")


def test_a_configuration_never_changes() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().training.rounds = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3  # type: ignore[misc]


def test_options_say_everything_that_determines_a_run() -> None:
    config = parse_config({"options": {"scfl": {"batch": 16}}})
    assert config.options["scfl"] == {"batch": 16, "device_weight": 0.5, "weight_cap": 100.0, "upload": "rows"}
    assert config.options["codedfedl"] == option_defaults("codedfedl")
    assert Config().options == parse_config({"options": {"dp-cfl": {}}}).options
    assert config != Config()


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("seed", -1, f"seed = -1 is not possible: it must be an integer (0 or more, at most {MAX_SEED})."),
        ("seed", 1.5, f"seed = 1.5 is not possible: it must be an integer (0 or more, at most {MAX_SEED})."),
        ("schemes", [], "schemes = [] is not possible: it must be a non-empty list of strings."),
        ("schemes", 3, "schemes = 3 is not possible: it must be a non-empty list of strings."),
        (
            "schemes",
            ["scfl", "fedavg", "scfl"],
            'schemes = ["scfl", "fedavg", "scfl"] is not possible: scfl is named twice, name each once.',
        ),
        (
            "coding.noise_variance",
            "abc",
            'coding.noise_variance = "abc" is not possible: it must be a finite number (0 or more, at most 1e+30)'
            " or a list of finite numbers (0 or more, at most 1e+30).",
        ),
        (
            "coding.noise_variance",
            math.nan,
            "coding.noise_variance = NaN is not possible: it must be a finite number (0 or more, at most 1e+30)"
            " or a list of finite numbers (0 or more, at most 1e+30).",
        ),
        (
            "coding.noise_variance",
            [0.1, -2],
            "coding.noise_variance[1] = -2 is not possible: it must be a finite number (0 or more, at most 1e+30).",
        ),
        (
            "coding.coded_samples",
            0,
            f"coding.coded_samples = 0 is not possible: it must be an integer (1 or more, at most {MAX_COUNT}).",
        ),
        ("features.gamma", -1, 'features.gamma = -1 is not possible: it must be a finite number (above 0) or "scale".'),
        ("features.map", "fft", 'features.map = "fft" is not possible: it must be "auto", "rff" or "none".'),
        ("features.intercept", 7, 'features.intercept = 7 is not possible: it must be true or false or "auto".'),
        (
            "fleet.transmit_power_dbm",
            [1.0],
            "fleet.transmit_power_dbm = [1.0] is not possible: it must be a list of 2 finite numbers.",
        ),
        (
            "fleet.mac_rate_factor",
            [0.0, 1.0],
            "fleet.mac_rate_factor[0] = 0.0 is not possible: it must be a finite number (above 0).",
        ),
        (
            "fleet.noise_power_dbm",
            math.inf,
            "fleet.noise_power_dbm = Infinity is not possible: it must be a finite number.",
        ),
        (
            "fleet.straggler_ratio",
            1,
            "fleet.straggler_ratio = 1 is not possible: it must be a finite number (0 or more, below 1).",
        ),
        (
            "learning_rate.tuning_share",
            2,
            "learning_rate.tuning_share = 2 is not possible: it must be a finite number (above 0, at most 1).",
        ),
        (
            "learning_rate.grid",
            [],
            "learning_rate.grid = [] is not possible: it must be a non-empty list of finite numbers (above 0).",
        ),
        ("data.target", ["y", 3], "data.target[1] = 3 is not possible: it must be a string."),
        (
            "data.dataset",
            "a\0.csv",
            'data.dataset = "a\\u0000.csv" is not possible: it must be UTF-8 text without NUL characters.',
        ),
        (
            "data.data_dir",
            "\udcff",
            'data.data_dir = "\\udcff" is not possible: it must be UTF-8 text without NUL characters.',
        ),
        ("data", 3, "data = 3 is not possible: it must be a section with keys and values."),
        ("options.scfl", 3, "options.scfl = 3 is not possible: it must be a section with keys and values."),
        ("options.scfl.batch", 0, "options.scfl.batch = 0 must be 1 or more."),
        ("options.scfl.device_weight", 3.0, "options.scfl.device_weight = 3.0 must be between 0 and 1."),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_sentence(place: str, value: object, sentence: str) -> None:
    assert refusal(place, value) == sentence


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("sed", "sed: there is no such key, did you mean seed?"),
        ("traning.rounds", "traning: there is no such key, did you mean training?"),
        ("zzz", "zzz: there is no such key; `codedfl config` lists all of them."),
        ("training.round", "training.round: there is no such key, did you mean training.rounds?"),
        ("data.zzz", "data.zzz: there is no such key; `codedfl config` lists all of them."),
        ("options.sclf.batch", "options.sclf: there is no such key, did you mean options.scfl?"),
        ("options.scfl.btch", "options.scfl.btch: there is no such key, did you mean options.scfl.batch?"),
        ("options.dp-cfl.batch", "options.dp-cfl.batch: there is no such key; `codedfl config` lists all of them."),
        ("data.a\nb", 'data."a\\nb": there is no such key; `codedfl config` lists all of them.'),
        ("", '"": there is no such key; `codedfl config` lists all of them.'),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(place: str, sentence: str) -> None:
    assert refusal(place, 1) == sentence


def test_an_unknown_scheme_is_refused_with_a_suggestion() -> None:
    sentence = refusal("schemes", ["sclf"])
    assert "'sclf'" in sentence
    assert sentence.endswith("Did you mean 'scfl'?")


@pytest.mark.parametrize("value", [[3], None, {"a": 1}, 10**12, -(10**12), "many", 0.5])
def test_a_bad_option_is_named(value: object) -> None:
    sentence = refusal("options.scfl-fixed.batch", value)
    assert sentence.startswith("options.scfl-fixed.batch")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "place",
    [".".join(place) for place in PLACES if isinstance(getattr(SECTIONS.get(place[0]), place[-1], None), float | int)],
)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, pytest.param(10**400, id="1e400"), pytest.param(10**5000, id="1e5000")]
)
def test_no_number_may_be_nan_infinite_or_gigantic(place: str, value: float) -> None:
    sentence = refusal(place, value)
    assert sentence.startswith(f"{place} = ")
    assert len(sentence) < 250


NUMBERS = [
    place
    for place in PLACES
    if isinstance(value := getattr(SECTIONS.get(place[0]), place[-1], None), float | int | tuple)
    and not isinstance(value, bool)
]


@pytest.mark.parametrize("place", [".".join(place) for place in [*NUMBERS, ("seed",)]])
@pytest.mark.parametrize("value", [True, False, [True, 1.0]])
def test_true_and_false_are_no_numbers(place: str, value: object) -> None:
    sentence = refusal(place, value)
    assert sentence.startswith(f"{place} = " if not isinstance(value, list) else place)
    assert "it must be " in sentence


@pytest.mark.parametrize(
    "place", ["options.scfl.batch", "options.scfl.device_weight", "options.codedfedl.mini_batches"]
)
def test_true_is_no_number_in_an_option_either(place: str) -> None:
    assert refusal(place, True).startswith(f"{place} = true is not possible: it must be a number")
    assert parse_config({"options": {"codedfedl": {"noise": True}}}).options["codedfedl"]["noise"] is True


def test_the_first_of_several_errors_is_reported() -> None:
    with pytest.raises(InputError, match=r"^seed = -1 "):
        parse_config({"seed": -1, "training": {"rounds": -1}})


def test_no_such_key_survives_odd_keys() -> None:
    assert "\n" not in no_such_key("data.", "\n\t\0", ["devices"])


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["auto", "scale", "grid", "rff", "scfl", "fedavg", "adaptive", "fixed", "digits"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
NAMES = sorted({name for place in PLACES for name in place} | set(SCHEMES) | {"batch", "deadline", "noise"})
KEYS = st.sampled_from(NAMES) | st.text(max_size=6)
NESTED = st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3)))
RIGHT_PLACE = st.sampled_from(PLACES).flatmap(
    lambda place: VALUES.map(lambda value: {place[0]: value if len(place) == 1 else {place[1]: value}})
)
OPTIONS = st.sampled_from(sorted(SCHEMES)).flatmap(
    lambda name: st.dictionaries(st.sampled_from(["batch", "device_weight", "deadline", "noise", "x"]), VALUES).map(
        lambda options: {"options": {name: options}}
    )
)


@pytest.mark.slow
@given(values=NESTED | RIGHT_PLACE | OPTIONS)
@example(values={"options": {"\x1e": None}})
def test_whatever_goes_in_is_a_config_or_one_sentence(values: dict[str, Any]) -> None:
    sentence = refusal_of(lambda: parse_config(values))
    assert len(sentence.splitlines()) <= 1
    assert "pydantic" not in sentence
    if not sentence:
        config = parse_config(values)
        assert parse_config(config.model_dump()) == config
