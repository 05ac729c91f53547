"""Training: local steps, coded steps, aggregation and the round loop (Sec. III-B to III-D)."""

from codedfl.training.aggregation import Aggregation, DeviceUpdate, InverseProbability, Sum
from codedfl.training.allocated import AllocatedGradient
from codedfl.training.callbacks import Callback, StopOnDivergence, StopOnInterrupt, StopTraining
from codedfl.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from codedfl.training.devices import DevicePlan, DeviceWork, Idle, LocalSGD
from codedfl.training.evaluation import Evaluator, Reference
from codedfl.training.learning_rate import LearningRate
from codedfl.training.ledger import Ledger
from codedfl.training.loop import Entrant, StopTogether, rounds_within, train, train_together
from codedfl.training.recording import Recorder, curves_to_csv
from codedfl.training.result import Evaluation, Progress, RunResult, Status
from codedfl.training.sampling import bernoulli_batches
from codedfl.training.scheme import PreparedScheme, Scheme, SchemeState
from codedfl.training.server import CodedSGD, ParityGradient, ServerPlan, ServerWork
from codedfl.training.setting import Code, Setting
from codedfl.training.steps import accumulate_gradients
from codedfl.training.tuning import (
    Search,
    StepSizeChoice,
    Trial,
    choose_step_size,
    choose_step_sizes,
    validation_setting,
)
from codedfl.training.uploads import CodedUpload, UploadCost

__all__ = [
    "Aggregation",
    "AllocatedGradient",
    "Callback",
    "Checkpoint",
    "Code",
    "CodedSGD",
    "CodedUpload",
    "DevicePlan",
    "DeviceUpdate",
    "DeviceWork",
    "Entrant",
    "Evaluation",
    "Evaluator",
    "Idle",
    "InverseProbability",
    "LearningRate",
    "Ledger",
    "LocalSGD",
    "ParityGradient",
    "PreparedScheme",
    "Progress",
    "Recorder",
    "Reference",
    "RunResult",
    "Scheme",
    "SchemeState",
    "Search",
    "ServerPlan",
    "ServerWork",
    "Setting",
    "Status",
    "StepSizeChoice",
    "StopOnDivergence",
    "StopOnInterrupt",
    "StopTogether",
    "StopTraining",
    "Sum",
    "Trial",
    "UploadCost",
    "accumulate_gradients",
    "bernoulli_batches",
    "choose_step_size",
    "choose_step_sizes",
    "curves_to_csv",
    "load_checkpoint",
    "rounds_within",
    "save_checkpoint",
    "train",
    "train_together",
    "validation_setting",
]
