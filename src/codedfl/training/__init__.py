"""Training: local steps, coded steps, aggregation and the round loop (Sec. III-B to III-D)."""

from codedfl.training._aggregation import Aggregation, DeviceUpdate, InverseProbability, Round, Sum
from codedfl.training._allocated import AllocatedGradient
from codedfl.training._callbacks import Callback, ReportProgress, StopOnDivergence, StopOnInterrupt, StopTraining
from codedfl.training._checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from codedfl.training._devices import (
    DevicePlan,
    DeviceWork,
    Idle,
    LocalSGD,
    LocalSGDPlan,
    WalkPlan,
    bernoulli_steps,
    walking_steps,
)
from codedfl.training._evaluation import Evaluator, Reference
from codedfl.training._gradients import accumulate_gradients
from codedfl.training._learning_rate import LearningRate
from codedfl.training._ledger import Ledger
from codedfl.training._lockstep import advance
from codedfl.training._loop import StopTogether, rounds_within, train, train_together
from codedfl.training._one_shot import OneShot
from codedfl.training._privacy import PrivacyTarget, Release, ThreatModel, clipped_labels, least_arrivals
from codedfl.training._private_sum import Geometry, PrivateSum, clipped_sum
from codedfl.training._recording import Recorder, curves_to_csv
from codedfl.training._records import record_arrays, record_from
from codedfl.training._result import Evaluation, RunProgress, RunResult, Status, StepSizeChoice, Trial
from codedfl.training._run import Run
from codedfl.training._sampling import bernoulli_batches, sample_batches
from codedfl.training._scheme import PreparedScheme, Scheme, SchemeState, State
from codedfl.training._server import CodedSGD, ParityGradient, ServerPlan, ServerWork, full_steps_of
from codedfl.training._setting import LARGEST_GRAM, Code, Setting, asking
from codedfl.training._stability import round_growth, unstable_steps
from codedfl.training._statistics import ExactStatistics
from codedfl.training._steps import Start, Steps
from codedfl.training._tuning import (
    Search,
    choose_step_sizes,
    validation_setting,
)
from codedfl.training._uploads import CodedUpload, Held, Upload, UploadCost, Uploaded, coded_of, without_code

__all__ = [
    "LARGEST_GRAM",
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
    "ExactStatistics",
    "Geometry",
    "Held",
    "Idle",
    "InverseProbability",
    "LearningRate",
    "Ledger",
    "LocalSGD",
    "LocalSGDPlan",
    "OneShot",
    "ParityGradient",
    "PreparedScheme",
    "PrivacyTarget",
    "PrivateSum",
    "Recorder",
    "Reference",
    "Release",
    "ReportProgress",
    "Round",
    "Run",
    "RunProgress",
    "RunResult",
    "Scheme",
    "SchemeState",
    "Search",
    "ServerPlan",
    "ServerWork",
    "Setting",
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
    "ThreatModel",
    "Trial",
    "Upload",
    "UploadCost",
    "Uploaded",
    "WalkPlan",
    "accumulate_gradients",
    "advance",
    "asking",
    "bernoulli_batches",
    "bernoulli_steps",
    "choose_step_sizes",
    "clipped_labels",
    "clipped_sum",
    "coded_of",
    "curves_to_csv",
    "full_steps_of",
    "least_arrivals",
    "load_checkpoint",
    "record_arrays",
    "record_from",
    "round_growth",
    "rounds_within",
    "sample_batches",
    "save_checkpoint",
    "train",
    "train_together",
    "unstable_steps",
    "validation_setting",
    "walking_steps",
    "without_code",
]
