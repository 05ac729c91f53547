"""A scheme: a frozen composition of choices, a row of Table I of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl.coding import CodedData, SubspaceSketch
from codedfl.errors import InputError
from codedfl.fleet import Arrivals
from codedfl.training._aggregation import Aggregation, Round
from codedfl.training._devices import DevicePlan, DeviceWork
from codedfl.training._server import ServerPlan, ServerWork, full_steps_of
from codedfl.training._setting import Setting
from codedfl.training._uploads import Upload, UploadCost, Uploaded, coded_of, without_code
from codedfl.typing import FloatArray


class State(Protocol):
    """The state of a scheme between rounds: any frozen dataclass of arrays and numbers with these two fields.

    A checkpoint saves it field by field, with any further fields.
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


@dataclass(frozen=True)
class Scheme:
    """A training scheme.

    The server's update has the form ``init(prepared, model) -> state`` and
    ``apply(state, round) -> state, diagnostics``. The default is plain SGD with an average of the iterates. A scheme
    with more state (momentum, a preconditioner, a control variate per device, estimates of the arrival probabilities)
    is a subclass that overrides these two methods and returns its own state.

    Args:
        name: its name on the command line.
        title: its name in a figure.
        upload: the upload before training; None for none.
        device: the work of a device in a round.
        server: the work of the server in a round; None for none.
        aggregation: the rule that combines both.
        final: the model that the scheme returns, the step-weighted ``average`` or the ``last`` iterate.

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
        ...     def apply(self, state, round):
        ...         velocity = 0.9 * state.velocity + self.aggregation.combine(round, state.model)
        ...         return replace(self.moved(state, velocity, round.step_size), velocity=velocity), {}
        >>> Momentum(**vars(fedavg())).title
        'FedAvg'
    """

    name: str
    title: str
    upload: Upload | None
    device: DeviceWork
    server: ServerWork | None
    aggregation: Aggregation
    final: Literal["average", "last"]

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

    def apply(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
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

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:
        """Refuse a setting in which the scheme cannot run, before any data is encoded.

        Raises:
            InputError: naming the field, its value and the fix.
        """
        if self.upload is not None:
            self.upload.require_possible(setting, plan)
        if self.server is not None and getattr(self.upload, "kind", None) == "factor":
            full_steps_of(setting)

    def prepare(
        self, setting: Setting, *, arrivals: Arrivals | None = None, plan: DevicePlan | None = None
    ) -> PreparedScheme:
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
        plan = plan or self.device.plan(setting, arrivals)
        self.require_possible(setting, plan)
        uploaded, cost = self.upload.prepare(setting, plan) if self.upload else ((), None)
        return self.prepared(setting, plan, uploaded, cost)

    def prepared(
        self, setting: Setting, plan: DevicePlan, uploaded: Uploaded, cost: UploadCost | None
    ) -> PreparedScheme:
        """Return the scheme ready for its rounds, given what the server holds."""
        server = self.server.plan(setting, coded_of(uploaded)) if self.server else None
        return PreparedScheme(self, setting, plan, server, uploaded, cost)

    def upload_cost(self, setting: Setting, plan: DevicePlan) -> UploadCost | None:
        """Return the cost of everything before the first round, without drawing any coded data; None without an upload."""
        return self.upload.cost(setting, plan) if self.upload else None

    def aggregation_macs(self, setting: Setting) -> float:  # noqa: ARG002 (for subclasses)
        """Return the server's arithmetic between the deadline and the next round, beyond adding up what arrived."""
        return 0.0

    def depends_on(self, setting: Setting) -> Setting:
        """Return the setting with everything blanked out that this scheme does not use.

        Runs are the same if their schemes and these settings have the same identity: FedAvg at two noise levels, for
        example.
        """
        code = without_code(setting.code) if self.upload is None else self.upload.depends_on(setting.code)
        return replace(
            setting,
            code=code,
            server_batch=None if self.server is None else setting.server_batch,
            privacy=setting.privacy if self.private or self.upload is not None else None,
        )


@dataclass(frozen=True, eq=False, repr=False)
class PreparedScheme(ShortRepr):
    """A scheme in a setting, ready for its rounds.

    Args:
        scheme: the scheme.
        setting: data, fleet, channel, code.
        device: the work of the devices.
        server: the work of the server.
        uploaded: what the server holds: coded data, one entry per coded batch, or sketches.
        upload_cost: the cost of the upload; None without one.
    """

    scheme: Scheme
    setting: Setting
    device: DevicePlan
    server: ServerPlan | None
    uploaded: Uploaded
    upload_cost: UploadCost | None

    @property
    def coded(self) -> tuple[CodedData, ...]:
        """The coded data at the server, one entry per coded batch; empty if the upload was of another kind."""
        return coded_of(self.uploaded)

    @property
    def sketch(self) -> SubspaceSketch:
        """The sketches at the server.

        Raises:
            LookupError: if the upload was of another kind.
        """
        for held in self.uploaded:
            if isinstance(held, SubspaceSketch):
                return held
        raise LookupError(f"{self.scheme.name} uploads no sketch")

    @property
    def model_shape(self) -> tuple[int, int]:
        """The shape of the model, ``(d, o)``."""
        return self.setting.federation.dimension, self.setting.federation.outputs
