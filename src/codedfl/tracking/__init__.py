"""Learning curves, configurations and privacy statements in MLflow and TensorBoard, while schemes are trained."""

from codedfl.tracking._mlflow import MLflowCallback
from codedfl.tracking._parse import tracker_from
from codedfl.tracking._tensorboard import TensorBoardCallback
from codedfl.tracking._tracker import Tracker, Writer

__all__ = ["MLflowCallback", "TensorBoardCallback", "Tracker", "Writer", "tracker_from"]
