"""Learning curves, configurations and privacy statements in MLflow and TensorBoard, while schemes are trained."""

from codedfl.tracking._services import MLflowCallback, TensorBoardCallback, tracker_from
from codedfl.tracking._tracker import Tracker, Writer

__all__ = ["MLflowCallback", "TensorBoardCallback", "Tracker", "Writer", "tracker_from"]
