"""Training: local steps, coded steps, aggregation and the round loop (Sec. III-B to III-D)."""

from codedfl.training.engine._gradients import accumulate_gradients
from codedfl.training.engine._private_sum import PrivateSum, clipped_sum
from codedfl.training.engine._sampling import bernoulli_batches, sample_batches
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._aggregation import (
    Aggregation,
    DeviceUpdate,
    InverseProbability,
    Payload,
    Round,
    Sum,
)
from codedfl.training.protocol._allocated import AllocatedGradient
from codedfl.training.protocol._devices import (
    DevicePlan,
    DeviceWork,
    Idle,
    LocalSGD,
    LocalSGDPlan,
    Task,
    WalkPlan,
    bernoulli_steps,
    walking_steps,
)
from codedfl.training.protocol._interface import (
    device_update,
    initial_memory,
    initial_state,
    next_state,
    returned_model,
    sent_to_devices,
)
from codedfl.training.protocol._local import Local
from codedfl.training.protocol._one_shot import OneShot
from codedfl.training.protocol._private_gradient import PrivateGradient, PrivatePlan
from codedfl.training.protocol._scheme import Forecastable, PreparedScheme, Scheme, SchemeState, Shape, State
from codedfl.training.protocol._server import CodedSGD, ParityGradient, ServerPlan, ServerRound, ServerWork
from codedfl.training.run._callbacks import (
    Callback,
    Recorder,
    ReportProgress,
    StopOnDivergence,
    StopOnInterrupt,
    StopTraining,
    curves_to_csv,
)
from codedfl.training.run._checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from codedfl.training.run._evaluation import Evaluator, Reference
from codedfl.training.run._learning_rate import LearningRate
from codedfl.training.run._ledger import Ledger
from codedfl.training.run._lockstep import advance
from codedfl.training.run._loop import StopTogether, rounds_within, train, train_together
from codedfl.training.run._records import record_arrays, record_from
from codedfl.training.run._result import Evaluation, RunProgress, RunResult, Status, StepSizeChoice, Trial
from codedfl.training.run._run import Run, require_no_bound
from codedfl.training.run._stability import round_growth, unstable_steps
from codedfl.training.run._tuning import (
    Search,
    choose_step_sizes,
    validation_setting,
)

__all__ = [
    "Aggregation",
    "AllocatedGradient",
    "Callback",
    "Checkpoint",
    "CodedSGD",
    "DevicePlan",
    "DeviceUpdate",
    "DeviceWork",
    "Evaluation",
    "Evaluator",
    "Forecastable",
    "Idle",
    "InverseProbability",
    "LearningRate",
    "Ledger",
    "Local",
    "LocalSGD",
    "LocalSGDPlan",
    "OneShot",
    "ParityGradient",
    "Payload",
    "PreparedScheme",
    "PrivateGradient",
    "PrivatePlan",
    "PrivateSum",
    "Recorder",
    "Reference",
    "ReportProgress",
    "Round",
    "Run",
    "RunProgress",
    "RunResult",
    "Scheme",
    "SchemeState",
    "Search",
    "ServerPlan",
    "ServerRound",
    "ServerWork",
    "Shape",
    "Start",
    "State",
    "Status",
    "StepSizeChoice",
    "Steps",
    "StopOnDivergence",
    "StopOnInterrupt",
    "StopTogether",
    "StopTraining",
    "Sum",
    "Task",
    "Trial",
    "WalkPlan",
    "accumulate_gradients",
    "advance",
    "bernoulli_batches",
    "bernoulli_steps",
    "choose_step_sizes",
    "clipped_sum",
    "curves_to_csv",
    "device_update",
    "initial_memory",
    "initial_state",
    "load_checkpoint",
    "next_state",
    "record_arrays",
    "record_from",
    "require_no_bound",
    "returned_model",
    "round_growth",
    "rounds_within",
    "sample_batches",
    "save_checkpoint",
    "sent_to_devices",
    "train",
    "train_together",
    "unstable_steps",
    "validation_setting",
    "walking_steps",
]
