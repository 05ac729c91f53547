"""Every scheme passes the same suite, those of the template of plug-ins too, and the suite catches schemes that are broken."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.schemes import SCHEMES, dp_gd, fed3r, fedavg, ihm, make_scheme, momentum, scfl, ssp
from codedfl.training import Local, LocalSGD, OneShot, Payload, Round, Scheme, SchemeState, Sum
from codedfl.typing import FloatArray
from tests.schemes import suite
from tests.schemes.suite import CHECKS, Check

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin"

OPTIONS: dict[str, dict[str, object]] = {
    "codedfedl": {"mini_batches": 3},
    "scfl-fixed": {"batch": 4},
    "dp-gd": {"rounds": 4},
    "scfl-private": {"rounds": 4},
}
"""Options that suit the small problem."""


def of_template() -> dict[str, Scheme]:
    """Build what the template of plug-ins offers, by the names of its entry points, without installing it."""
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    made = {}
    for name, target in project["entry-points"]["codedfl.schemes"].items():
        module, _, function = target.partition(":")
        path = TEMPLATE.joinpath("src", *module.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"tests.schemes.template_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[loaded.__name__] = loaded  # dataclasses look their module up
        spec.loader.exec_module(loaded)
        made[name] = getattr(loaded, function)()
    return made


PLUGINS = of_template()

EXAMPLES: dict[str, Scheme] = {
    **{name: make_scheme(name, OPTIONS.get(name)) for name in SCHEMES},
    **PLUGINS,
    "scfl, factor": make_scheme("scfl", {"upload": "factor"}),
    "ccfl, stale": make_scheme("ccfl", {"memory": "stale"}),
    "ccfl, no memory": make_scheme("ccfl", {"memory": "none", "estimate_arrivals": True}),
    "dp-gd, sampled rows": make_scheme("dp-gd", {"rounds": 4, "curvature": "none"}),
    "ssp, adaptive": make_scheme("ssp", {"method": "adassp"}),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_scheme_keeps_its_contract(name: str, check: Check) -> None:
    check(EXAMPLES[name])


def test_the_template_offers_three_schemes() -> None:
    assert set(PLUGINS) == {"step-decay", "fedprox", "scaffold"}


# Breakages ---------------------------------------------------------------------------------------------------------------


def broken(scheme: Scheme, **methods: Any) -> Scheme:
    """Return the scheme with other methods, of a subclass with the same fields."""
    cls = type(f"Broken{type(scheme).__name__}", (type(scheme),), methods)
    made: Scheme = cls(**{item.name: getattr(scheme, item.name) for item in fields(scheme)})
    return made


def kept(scheme: Scheme) -> dict[str, Any]:
    """Return what a scheme keeps where no state is: beside its fields."""
    return vars(scheme).setdefault("_kept", {})  # type: ignore[no-any-return]


def overwrites_the_model() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        after, diagnostics = Scheme.step(self, state, round)
        state.model[:] = after.model
        return replace(after, model=state.model), diagnostics

    return broken(fedavg(), step=step)


def scales_messages_in_place() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        received = list(round.payloads)
        for _, payload in received:
            np.multiply(payload["update"], 0.5, out=payload["update"])
        return Scheme.step(self, state, replace(round, payloads=received))

    return broken(fedavg(), step=step)


def adds_to_the_servers_update() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        assert round.server_update is not None
        np.add(round.server_update, np.float32(1e-3), out=round.server_update)
        return Scheme.step(self, state, round)

    return broken(scfl(), step=step)


def stays_in_its_round() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        after, diagnostics = Scheme.step(self, state, round)
        return replace(after, round=state.round), diagnostics

    return broken(fedavg(), step=step)


def draws_noise_from_numpy() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        noisy = replace(round, step_size=round.step_size * (1 + 0.1 * np.random.random()))  # noqa: NPY002
        return Scheme.step(self, state, noisy)

    return broken(fedavg(), step=step)


def trusts_the_first_to_arrive() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        received = [
            (device, {"update": payload["update"] / (1 + place)})
            for place, (device, payload) in enumerate(round.payloads)
        ]
        return Scheme.step(self, state, replace(round, payloads=received))

    return broken(fedavg(), step=step)


def forgets_who_is_missing() -> Scheme:
    """The weights that it describes are not those that it applies."""

    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        return Scheme.step(replace(self, aggregation=Sum()), state, round)

    return broken(momentum(momentum=0.0), step=step)


def takes_coded_data_to_stand_for_everybody() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        return Scheme.step(self, state, replace(round, covered=np.ones_like(round.covered)))

    return broken(scfl(), step=step)


def sends_more_than_it_declares() -> Scheme:
    def update(self: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        memory, payload = Scheme.update(self, memory, sent, local)
        return memory, {**payload, "largest": payload["update"].max(axis=0)}

    return broken(fedavg(), update=update)


def declares_less_than_it_broadcasts() -> Scheme:
    return broken(PLUGINS["scaffold"], travels_down=lambda _, shape: {"model": shape})


def sends_a_vector_for_a_matrix() -> Scheme:
    def update(self: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        memory, payload = type(PLUGINS["scaffold"]).update(self, memory, sent, local)
        return memory, {**payload, "variate": payload["variate"].ravel()}

    def step(self: Scheme, state: Any, round: Round) -> Any:
        received = [
            (device, {**payload, "variate": payload["variate"].reshape(state.model.shape)})
            for device, payload in round.payloads
        ]
        return type(PLUGINS["scaffold"]).step(self, state, replace(round, payloads=received))

    return broken(PLUGINS["scaffold"], update=update, step=step)


def remembers_in_place() -> Scheme:
    """All devices begin with the same array."""

    def update(self: Scheme, memory: FloatArray, sent: Payload, local: Local) -> tuple[Any, Payload]:
        after, payload = type(PLUGINS["scaffold"]).update(self, memory, sent, local)
        memory[:] = after
        return memory, payload

    return broken(PLUGINS["scaffold"], update=update)


def moves_what_it_was_sent() -> Scheme:
    def update(_: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        update = local.descend(sent["model"])
        sent["model"][:] -= np.float32(0.01) * update
        return memory, {"update": update}

    return broken(fedavg(), update=update)


def remembers_for_all_devices_at_once() -> Scheme:
    def update(self: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        update = local.descend(sent["model"])
        before = kept(self).get("update", np.zeros_like(update))
        kept(self)["update"] = update
        return memory, {"update": update + np.float32(0.1) * before}

    return broken(fedavg(), update=update)


def draws_on_devices_from_numpy() -> Scheme:
    def update(_: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        update = local.descend(sent["model"])
        return memory, {"update": update * update.dtype.type(np.random.random())}  # noqa: NPY002

    return broken(fedavg(), update=update)


def computes_on_all_rows_of_the_federation() -> Scheme:
    @dataclass(frozen=True)
    class Everywhere(LocalSGD):
        def plan(self, *given: Any) -> Any:
            plan: Any = super().plan(*given)

            class Wrong(type(plan)):  # type: ignore[misc]
                def steps(self, device: int, *given: Any) -> Any:
                    steps = super().steps(device, *given)
                    mean = self.federation.features.mean(axis=0, dtype=steps.features.dtype)
                    return replace(steps, features=steps.features - mean)

            return Wrong(**{item.name: getattr(plan, item.name) for item in fields(plan)})

    return replace(fedavg(), device=Everywhere())


def gets_its_update_after_its_class() -> Scheme:
    """Simulations have noted by then that devices have no half of their own."""
    scheme = broken(fedavg())
    halved = PLUGINS["fedprox"].update
    type(scheme).update = lambda _, *given: halved(*given)  # type: ignore[method-assign]
    return scheme


def returns_another_shape() -> Scheme:
    return broken(fedavg(), final_model=lambda _, state: state.model.T)


def divides_by_no_rounds() -> Scheme:
    """The average before the first round is 0 / 0."""

    def final_model(self: Scheme, state: SchemeState) -> FloatArray:  # noqa: ARG001
        with np.errstate(invalid="ignore"):
            average: FloatArray = (state.weighted_sum / np.float64(state.step_sum)).astype(state.model.dtype)
        return average

    return broken(scfl(), final_model=final_model)


def drifts_to_double() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        after, diagnostics = Scheme.step(self, state, round)
        return replace(after, model=after.model * np.ones(1)), diagnostics

    return broken(fedavg(), step=step)


def answers_in_double() -> Scheme:
    def update(self: Scheme, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        memory, payload = Scheme.update(self, memory, sent, local)
        return memory, {"update": payload["update"].astype(np.float64)}

    return broken(fedavg(), update=update)


def plans_one_more_round_at_each_call() -> Scheme:
    def rounds(self: Scheme, setting: Any) -> int:  # noqa: ARG001
        kept(self)["rounds"] = kept(self).get("rounds", 3) + 1
        return int(kept(self)["rounds"])

    return broken(fedavg(), rounds=rounds)


def solves_and_wants_rounds() -> Scheme:
    return broken(fed3r(), rounds=lambda *_: 5)


def solves_again_in_every_round() -> Scheme:
    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        after, diagnostics = OneShot.step(self, state, round)  # type: ignore[arg-type]
        return replace(after, model=state.model * state.model.dtype.type(0.9)), diagnostics

    return broken(fed3r(), step=step)


def counts_its_calls() -> Scheme:
    """A run that follows another begins where that one ended."""

    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        kept(self)["calls"] = kept(self).get("calls", 0) + 1
        return Scheme.step(self, state, replace(round, step_size=round.step_size / kept(self)["calls"]))

    return broken(fedavg(), step=step)


def keeps_velocity_beside_its_state() -> Scheme:
    """Right for one run alone; neither a checkpoint nor a run beside it knows whose velocity that is."""

    def step(self: Scheme, state: SchemeState, round: Round) -> Any:
        before = kept(self).get("velocity", np.zeros_like(state.model)) if state.round else np.zeros_like(state.model)
        velocity = before / 2 + self.aggregation.combine(round, state.model)
        kept(self)["velocity"] = velocity
        return self.moved(state, velocity, round.step_size), {}

    return broken(fedavg(), step=step)


@dataclass(frozen=True)
class DictionaryState(SchemeState):
    """No checkpoint can hold it."""

    seen: Mapping[str, float]


def keeps_a_dictionary() -> Scheme:
    def init(self: Scheme, prepared: Any, model: FloatArray) -> DictionaryState:
        return DictionaryState(**vars(Scheme.init(self, prepared, model)), seen={"rounds": 0.0})

    return broken(fedavg(), init=init)


@dataclass(frozen=True, eq=False)
class HalfState:
    """Only what is stated to be a field is written."""

    round: int
    model: FloatArray


def keeps_an_attribute_that_is_no_field() -> Scheme:
    def init(self: Scheme, prepared: Any, model: FloatArray) -> HalfState:  # noqa: ARG001
        return HalfState(0, model)

    def step(self: Scheme, state: HalfState, round: Round) -> Any:
        velocity = vars(state).get("velocity", 0.0) / 2 + self.aggregation.combine(round, state.model)
        after = HalfState(state.round + 1, state.model - state.model.dtype.type(round.step_size) * velocity)
        vars(after)["velocity"] = velocity
        return after, {}

    return broken(fedavg(), init=init, step=step, final_model=lambda _, state: state.model)


def says_nothing() -> Scheme:
    return broken(fedavg(), describe_server=lambda _: "")


def speaks_in_several_lines() -> Scheme:
    return broken(fedavg(), remarks=lambda *_: ("was lucky\nand is proud of it",))


def earns_by_preparing() -> Scheme:
    return broken(scfl(), preparing_macs=lambda *_: -1e6)


def changes_its_mind_about_costs() -> Scheme:
    prices = itertools.count()
    return broken(scfl(), preparing_macs=lambda *_: float(next(prices)))


def adds_a_tenth_of_the_noise() -> Scheme:
    def prepared(self: Any, *given: Any) -> Any:
        made: Any = type(ihm()).prepared(self, *given)
        return replace(made, device=replace(made.device, noise_multipliers=made.device.noise_multipliers / 10))

    return broken(ihm(), prepared=prepared)


def spends_the_budget_twice() -> Scheme:
    """The updates use all of the epsilon, of which the upload has had its share."""

    def prepared(self: Any, setting: Any, *given: Any) -> Any:
        made: Any = type(ihm()).prepared(self, setting, *given)
        alone = np.full(3, setting.privacy.noise_multiplier(updates=3))
        return replace(made, device=replace(made.device, noise_multipliers=alone))

    return broken(ihm(), prepared=prepared)


def leaves_the_noise_of_the_upload_out() -> Scheme:
    return replace(ssp(), upload=replace(make_scheme("fed3r").upload))  # type: ignore[type-var]


def claims_more_noise_than_it_adds() -> Scheme:
    def prepared(self: Any, *given: Any) -> Any:
        made: Any = type(dp_gd()).prepared(self, *given)
        plan = made.device

        class Quiet(type(plan)):  # type: ignore[misc]
            def steps(self, *given: Any) -> Any:
                steps = super().steps(*given)
                quiet = replace(steps.private, standard_deviation=steps.private.standard_deviation * 0.8)
                return replace(steps, private=quiet)

        return replace(made, device=Quiet(**{item.name: getattr(plan, item.name) for item in fields(plan)}))

    return broken(make_scheme("dp-gd", {"rounds": 4}), prepared=prepared)


BREAKAGES: tuple[tuple[Callable[[], Scheme], Check], ...] = (
    (overwrites_the_model, suite.a_step_changes_nothing_that_it_was_given),
    (scales_messages_in_place, suite.a_step_changes_nothing_that_it_was_given),
    (adds_to_the_servers_update, suite.a_step_changes_nothing_that_it_was_given),
    (draws_noise_from_numpy, suite.a_step_depends_on_its_arguments_alone),
    (counts_its_calls, suite.a_step_depends_on_its_arguments_alone),
    (stays_in_its_round, suite.every_step_counts_one_round),
    (trusts_the_first_to_arrive, suite.the_order_of_arrival_does_not_matter),
    (forgets_who_is_missing, suite.weights_make_up_for_who_is_missing),
    (takes_coded_data_to_stand_for_everybody, suite.weights_make_up_for_who_is_missing),
    (sends_more_than_it_declares, suite.what_travels_is_as_declared),
    (declares_less_than_it_broadcasts, suite.what_travels_is_as_declared),
    (sends_a_vector_for_a_matrix, suite.what_travels_is_as_declared),
    (gets_its_update_after_its_class, suite.both_runtimes_have_the_same_devices),
    (remembers_in_place, suite.a_device_keeps_to_itself),
    (moves_what_it_was_sent, suite.a_device_keeps_to_itself),
    (remembers_for_all_devices_at_once, suite.a_device_keeps_to_itself),
    (draws_on_devices_from_numpy, suite.a_device_keeps_to_itself),
    (computes_on_all_rows_of_the_federation, suite.a_device_keeps_to_itself),
    (remembers_in_place, suite.who_is_late_remembers_what_it_did),
    (returns_another_shape, suite.the_final_model_is_one),
    (divides_by_no_rounds, suite.the_final_model_is_one),
    (drifts_to_double, suite.single_precision_stays),
    (answers_in_double, suite.single_precision_stays),
    (plans_one_more_round_at_each_call, suite.its_rounds_are_settled),
    (solves_and_wants_rounds, suite.one_shot_is_one_shot),
    (solves_again_in_every_round, suite.one_shot_is_one_shot),
    (counts_its_calls, suite.a_run_can_be_repeated),
    (keeps_a_dictionary, suite.a_resumed_run_equals_an_uninterrupted_one),
    (keeps_velocity_beside_its_state, suite.a_resumed_run_equals_an_uninterrupted_one),
    (keeps_an_attribute_that_is_no_field, suite.a_resumed_run_equals_an_uninterrupted_one),
    (keeps_velocity_beside_its_state, suite.runs_in_lock_step_do_not_meet),
    (says_nothing, suite.it_describes_itself),
    (speaks_in_several_lines, suite.it_describes_itself),
    (earns_by_preparing, suite.its_costs_are_known_beforehand),
    (changes_its_mind_about_costs, suite.its_costs_are_known_beforehand),
    (adds_a_tenth_of_the_noise, suite.what_it_sends_keeps_the_target),
    (spends_the_budget_twice, suite.what_it_sends_keeps_the_target),
    (leaves_the_noise_of_the_upload_out, suite.what_it_sends_keeps_the_target),
    (claims_more_noise_than_it_adds, suite.its_noise_is_as_its_plan_says),
)


@pytest.mark.parametrize(
    ("breakage", "check"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1].__name__}") for each in BREAKAGES]
)
def test_a_broken_scheme_is_caught(breakage: Callable[[], Scheme], check: Check) -> None:
    with pytest.raises((AssertionError, InputError)) as caught:
        check(breakage())
    if isinstance(caught.value, InputError):
        assert "declares" in str(caught.value), "the loop itself compares what travels with what is declared"


def test_every_check_catches_something() -> None:
    """A check that no broken scheme fails would say nothing."""
    assert {check for _, check in BREAKAGES} == set(CHECKS)
