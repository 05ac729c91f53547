"""A scheme: a frozen composition of choices, a row of Table I of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, cast

import numpy as np

from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.fleet import Arrivals
from codedfl.identity import NOT_IDENTITY
from codedfl.losses import SQUARE, Loss
from codedfl.setting import Setting
from codedfl.training.protocol._aggregation import Aggregation, Payload, Round
from codedfl.training.protocol._devices import DevicePlan, DeviceWork
from codedfl.training.protocol._local import Local
from codedfl.training.protocol._server import ServerPlan, ServerWork, full_steps_of
from codedfl.typing import BoolArray, FloatArray, ShortRepr
from codedfl.uploads import HeldT, Upload, UploadCost

Shape = tuple[int, ...]


class State(Protocol):
    """The state of a scheme between rounds: any frozen dataclass with these two fields, of arrays and numbers, however nested.

    A checkpoint saves every array under the path that leads to it.
    """

    @property
    def round(self) -> int:
        """``k``, rounds completed."""

    @property
    def model(self) -> FloatArray:
        """``W_k``, the model that devices start the next round from."""


@dataclass(frozen=True, repr=False)
class SchemeState(ShortRepr):
    """The last iterate and the sums of the step-weighted average.

    Args:
        round: ``k``, rounds completed.
        model: ``W_k``, the last iterate.
        weighted_sum: ``sum_{j<k} eta_j W_j`` in float64.
        step_sum: ``sum_{j<k} eta_j``.
    """

    round: int
    model: FloatArray
    weighted_sum: FloatArray
    step_sum: float

    @property
    def average(self) -> FloatArray:
        """``sum_k eta_k W_k / sum_k eta_k``, the step-weighted average that SCFL returns (Sec. III-D)."""
        if self.step_sum == 0.0:
            return self.model
        averaged: FloatArray = (self.weighted_sum / self.step_sum).astype(self.model.dtype)
        return averaged


Forecastable = Literal["steps", "curvature", "solution"]
"""How planning predicts a scheme: gradient steps, with momentum if there is any; training with curvature; one solution."""


@dataclass(frozen=True)
class Scheme(Generic[HeldT]):
    """A training scheme.

    The server's half is ``init(prepared, model) -> state`` and ``step(state, round) -> state, diagnostics``. The default is
    plain SGD with an average of the iterates. A scheme with more state (momentum, a preconditioner, estimates of the arrival
    probabilities) is a subclass that overrides these two methods and returns its own state. The device's half is
    ``update(memory, sent, local) -> memory, payload``, by default local steps of the loss; a scheme that overrides it may let
    devices remember something (`first_memory`) and more arrays travel (`travels_down`, `travels_up`). A scheme declares how
    planning predicts it in ``forecast``; one that does not is left out of plans, since the default would be that of another
    algorithm.

    Args:
        name: its name on the command line.
        title: its name in a figure.
        upload: the upload before training; None for none.
        device: the work of a device in a round.
        server: the work of the server in a round; None for none.
        aggregation: the rule that combines both.
        final: the model that the scheme returns, the step-weighted ``average`` or the ``last`` iterate.
        colour: that of its line in pictures, ``#rrggbb``; None for a dark one.
        prominent: whether its line is thicker than others, and above them.

    Example:
        Server momentum needs two methods and one more field of state:

        >>> from codedfl.schemes import fedavg
        >>> @dataclass(frozen=True)
        ... class MomentumState(SchemeState):
        ...     velocity: FloatArray
        >>> @dataclass(frozen=True)
        ... class Momentum(Scheme):
        ...     def init(self, prepared, model):
        ...         return MomentumState(**vars(super().init(prepared, model)), velocity=np.zeros_like(model))
        ...     def step(self, state, round):
        ...         velocity = 0.9 * state.velocity + self.aggregation.combine(round, state.model)
        ...         return replace(self.moved(state, velocity, round.step_size), velocity=velocity), {}
        >>> Momentum(**vars(fedavg())).title
        'FedAvg'
    """

    name: str
    title: str
    upload: Upload[HeldT] | None
    device: DeviceWork
    server: ServerWork[HeldT] | None
    aggregation: Aggregation
    final: Literal["average", "last"]
    colour: str | None = field(default=None, kw_only=True, repr=False, compare=False, metadata=NOT_IDENTITY)
    prominent: bool = field(default=False, kw_only=True, repr=False, compare=False, metadata=NOT_IDENTITY)

    has_own_update: ClassVar[bool] = False
    """Whether devices do more than local steps of the loss from ``W_k``: if `update` or `broadcast` is overridden."""

    formerly: ClassVar[Mapping[str, str]] = {}
    """Paths within the state, and those under which checkpoints of earlier versions hold them."""

    forecast: ClassVar[Forecastable | None] = "steps"
    """How `codedfl.planning` predicts it; None for not at all."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Note whether devices have a half of their own, and forget how the base is predicted if this trains in another way."""
        super().__init_subclass__(**options)
        if "apply" in vars(cls):
            raise TypeError(f"{cls.__name__}.apply is called `step`: rename it")
        cls.has_own_update = cls.update is not Scheme.update or cls.broadcast is not Scheme.broadcast
        if "forecast" not in vars(cls) and not vars(cls).keys().isdisjoint(("init", "step", "update", "solve")):
            cls.forecast = None

    @property
    def heavy_ball(self) -> float | None:
        """``beta`` of the heavy ball that moves the model; None for plain steps."""
        return None

    @property
    def over_network(self) -> bool:
        """Whether a federation of real devices can train it: private updates are made by `PrivateGradient` alone there."""
        return self.device.over_network and not (self.private and self.has_own_update)

    def network_options(self) -> Mapping[str, Any]:
        """Return the options that a network decides, by name.

        Raises:
            InputError: an option has a value that no network allows.
        """
        return {}

    # What travels ------------------------------------------------------------------------------------------------------

    def travels_down(self, shape: Shape) -> Mapping[str, Shape]:
        """Return the shapes of what every device receives in a round, by name, given that of the model."""
        return {"model": shape}

    def travels_up(self, shape: Shape) -> Mapping[str, Shape]:
        """Return the shapes of what a device sends in a round, by name, given that of the model.

        ``update`` is what a round adds up over devices; of a cohort it counts for those that were not asked.
        """
        return {"update": shape}

    def placed(self, setting: Setting) -> Setting:
        """Return the setting with the loss of this scheme and its traffic, which decides bytes, seconds and who is late."""
        loss = self.loss_for(setting.federation.task)
        setting = setting if loss == setting.loss else replace(setting, loss=loss)
        shape = setting.federation.dimension, setting.federation.outputs
        down, up = (
            sum(math.prod(each) for each in arrays.values())
            for arrays in (self.travels_down(shape), self.travels_up(shape))
        )
        usual = math.prod(shape)
        return setting if down == up == usual else replace(setting, traffic=(down, up))

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan the work of the devices; ``arrivals`` replaces the channel model of the setting."""
        return self.device.plan(self.placed(setting), arrivals)

    # The device's half -------------------------------------------------------------------------------------------------

    def first_memory(self, shape: Shape, dtype: np.dtype[Any]) -> Any:  # noqa: ARG002 (for subclasses)
        """Return what a device remembers before its first round: arrays and numbers in dataclasses and tuples, or None."""
        return None

    def update(self, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
        """Return what a device remembers after a round, and what it sends: by default the sum of its local gradients.

        A device moves on to the new memory once the server has counted its message.

        Args:
            memory: what the device remembers.
            sent: what the server sent to it, by the names of `travels_down`.
            local: steps on its own rows.
        """
        return memory, {"update": local.descend(sent["model"])}

    # The server's half -------------------------------------------------------------------------------------------------

    def broadcast(self, state: Any) -> Payload:
        """Return what every device receives in a round."""
        return {"model": state.model}

    @property
    def tunes_itself(self) -> bool:
        """Whether the scheme needs no step size to be chosen for it.

        Its learning rate is then 1, a multiple of whatever step the scheme takes by itself; a run that diverges backs off to
        smaller multiples. Local models move by the same rate between steps, so devices and server should take one step a round.
        """
        return False

    @property
    def private(self) -> bool:
        """Whether the noise comes from the privacy target of the setting, and nothing is chosen on the devices' data."""
        return False

    def loss_for(self, task: Task) -> Loss:  # noqa: ARG002 (for subclasses)
        """Return the loss that is minimised, on which devices take their steps and by which models are judged."""
        return SQUARE

    def rounds(self, setting: Setting) -> int | None:  # noqa: ARG002 (for subclasses)
        """Return the number of rounds if the scheme sets it itself; None for as many as there is time for."""
        return None

    @property
    def one_shot(self) -> bool:
        """Whether `init` returns the final model, so that no rounds are needed after the upload."""
        return False

    def init(self, prepared: PreparedScheme, model: FloatArray) -> Any:  # noqa: ARG002 (for subclasses)
        """Return the state before the first round, at ``W_0``; it may depend on what was uploaded."""
        return SchemeState(0, model, np.zeros(model.shape), 0.0)

    def step(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
        """Return the state after ``W_{k+1} = W_k - eta_k g(W_k)``, and diagnostics."""
        return self.moved(state, self.aggregation.combine(round, state.model), round.step_size), {}

    def moved(self, state: Any, update: FloatArray, step_size: float) -> Any:
        """Return the state after a step along ``-update``, with the average kept up to date."""
        return replace(
            state,
            round=state.round + 1,
            model=state.model - state.model.dtype.type(step_size) * update,
            weighted_sum=state.weighted_sum + step_size * state.model,
            step_sum=state.step_sum + step_size,
        )

    def final_model(self, state: Any) -> FloatArray:
        """Return the model that the scheme would return now."""
        model: FloatArray = state.average if self.final == "average" else state.model
        return model

    def remarks(self, state: Any) -> Sequence[str]:  # noqa: ARG002 (for subclasses)
        """Return what a reader of the results should know of how it went: sentences that begin after the scheme's title."""
        return ()

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:
        """Refuse a setting in which the scheme cannot run, before any data is encoded.

        Raises:
            InputError: naming the field, its value and the fix.
        """
        if self.upload is not None:
            self.upload.require_possible(setting, plan)
        if self.server is not None and self.upload is not None and not self.upload.has_rows:
            full_steps_of(setting)

    def prepare(
        self, setting: Setting, *, arrivals: Arrivals | None = None, plan: DevicePlan | None = None
    ) -> PreparedScheme[HeldT]:
        """Prepare the first round: plan the work, encode, upload.

        Args:
            setting: data, fleet, channel, code.
            arrivals: which devices meet the deadline (a recorded trace, a network); by default the setting's channel
                model.
            plan: the work of the devices, if already planned.
        """
        if arrivals is not None and len(arrivals.probability) != setting.federation.devices:
            raise InputError(
                f"the arrivals describe {len(arrivals.probability)} device(s) but the data has {setting.federation.devices}:"
                " they must agree."
            )
        setting = self.placed(setting)
        plan = plan or self.plan(setting, arrivals)
        self.require_possible(setting, plan)
        return self.prepared(setting, plan, self.held_in(setting, plan), self.upload_cost(setting, plan))

    def held_in(self, setting: Setting, plan: DevicePlan) -> HeldT:
        """Return what the server holds after the upload in a simulation; None without an upload."""
        return self.upload.simulated(setting, plan) if self.upload else cast(HeldT, None)

    def prepared(
        self, setting: Setting, plan: DevicePlan, held: HeldT, cost: UploadCost | None
    ) -> PreparedScheme[HeldT]:
        """Return the scheme ready for its rounds, given what the server holds.

        Args:
            setting: data, fleet, channel, code.
            plan: the work of the devices.
            held: what the server holds after the upload.
            cost: that of everything before the first round, see `upload_cost`; None if it is not charged for.
        """
        setting = self.placed(setting)
        server = self.server.plan(setting, held) if self.server else None
        return PreparedScheme(self, setting, plan, server, held, cost)

    def upload_cost(self, setting: Setting, plan: DevicePlan) -> UploadCost | None:
        """Return the cost of everything before the first round, without drawing any coded data; None without an upload."""
        if self.upload is None:
            return None
        return self.upload.cost(setting, plan).with_server_macs(setting, self.preparing_macs(setting, plan))

    def preparing_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002 (for subclasses)
        """Return the server's arithmetic between the upload and the first round, beyond collecting the upload."""
        return 0.0

    def aggregation_macs(self, setting: Setting) -> float:  # noqa: ARG002 (for subclasses)
        """Return the server's arithmetic between the deadline and the next round, beyond adding up what arrived."""
        return 0.0

    def describe_devices(self) -> str:
        """Return what devices do in a round, in the words of a table."""
        return self.device.describe()

    def describe_server(self) -> str:
        """Return what the server does in a round, beyond combining what arrives."""
        if self.server is not None:
            return self.server.describe()
        return "nothing" if type(self).step is Scheme.step else "a step of its own"

    def describe_steps(self) -> str:
        """Return how many steps devices take in a round."""
        return self.device.describe_steps()

    def describe_combination(self) -> str:
        """Return how updates are combined."""
        return self.aggregation.describe()

    def describe_result(self) -> str:
        """Return which model training ends with."""
        return "step-weighted average" if self.final == "average" else "last iterate"

    def depends_on(self, setting: Setting) -> Setting:
        """Return the setting with everything blanked out that this scheme does not use.

        Runs are the same if their schemes and these settings have the same identity: FedAvg at two noise levels, for
        example.
        """
        code = setting.code.uncoded() if self.upload is None else self.upload.depends_on(setting.code)
        return replace(
            setting,
            code=code,
            server_batch=None if self.server is None else setting.server_batch,
            privacy=setting.privacy if self.private or self.upload is not None else None,
        )


@dataclass(frozen=True, eq=False, repr=False)
class PreparedScheme(ShortRepr, Generic[HeldT]):
    """A scheme in a setting, ready for its rounds.

    Args:
        scheme: the scheme.
        setting: data, fleet, channel, code.
        device: the work of the devices.
        server: the work of the server.
        held: what the server holds after the upload; None without one.
        upload_cost: the cost of the upload; None without one.
    """

    scheme: Scheme[HeldT]
    setting: Setting
    device: DevicePlan
    server: ServerPlan | None
    held: HeldT
    upload_cost: UploadCost | None

    @property
    def coded_noise(self) -> float:
        """The variance of the noise in every entry of the coded data that the server holds; 0 if it holds none."""
        return 0.0 if self.scheme.upload is None else self.scheme.upload.noise_in(self.held)

    @property
    def covered(self) -> BoolArray:
        """Whose data the coded data at the server stands for, (N,): nobody's without an upload."""
        return self.setting.code.uploading & (self.scheme.upload is not None)

    @property
    def loss(self) -> Loss:
        """The loss that the scheme minimises."""
        return self.scheme.loss_for(self.setting.federation.task)

    @property
    def smoothness(self) -> float:
        """``L``, the smoothness constant of its loss on the data of all devices."""
        return self.loss.smoothness(self.setting.gram)

    @property
    def model_shape(self) -> tuple[int, int]:
        """The shape of the model, ``(d, o)``."""
        return self.setting.federation.dimension, self.setting.federation.outputs
