"""Training: local steps, coded steps, aggregation and the round loop (Sec. III-B to III-D)."""

from codedfl.training.aggregation import Aggregation, DeviceUpdate, InverseProbability, Sum
from codedfl.training.allocated import AllocatedGradient
from codedfl.training.callbacks import Callback, StopOnDivergence, StopOnInterrupt, StopTraining
from codedfl.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from codedfl.training.devices import DevicePlan, DeviceWork, Idle, LocalSGD
from codedfl.training.evaluation import Evaluator, Reference
from codedfl.training.learning_rate import LearningRate
from codedfl.training.ledger import Ledger
from codedfl.training.loop import rounds_within, train
from codedfl.training.recording import Recorder, curves_to_csv
from codedfl.training.result import Evaluation, Progress, RunResult, Status
from codedfl.training.sampling import bernoulli_batches
from codedfl.training.scheme import PreparedScheme, Scheme, SchemeState
from codedfl.training.server import CodedSGD, ParityGradient, ServerPlan, ServerWork
from codedfl.training.setting import Code, Setting
from codedfl.training.steps import accumulate_gradients
from codedfl.training.tuning import StepSizeChoice, Trial, choose_step_size, validation_setting
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
    "ServerPlan",
    "ServerWork",
    "Setting",
    "Status",
    "StepSizeChoice",
    "StopOnDivergence",
    "StopOnInterrupt",
    "StopTraining",
    "Sum",
    "Trial",
    "UploadCost",
    "accumulate_gradients",
    "bernoulli_batches",
    "choose_step_size",
    "curves_to_csv",
    "load_checkpoint",
    "rounds_within",
    "save_checkpoint",
    "train",
    "validation_setting",
]
