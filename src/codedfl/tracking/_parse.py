"""A tracker named in one word."""

from __future__ import annotations

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.tracking._mlflow import MLflowCallback
from codedfl.tracking._tensorboard import TensorBoardCallback
from codedfl.tracking._tracker import Tracker


def tracker_from(text: str) -> Tracker:
    """Return the tracker that ``mlflow:URI`` or ``tensorboard:FOLDER`` names.

    Raises:
        InputError: for any other text, or if the tracker cannot be made.

    Example:
        >>> tracker_from("wandb:project")
        Traceback (most recent call last):
        codedfl.errors.InputError: track = 'wandb:project' is not possible: give mlflow:URI or tensorboard:FOLDER.
    """
    kind, colon, place = text.partition(":")
    if colon and place and kind == "mlflow":
        return MLflowCallback(place)
    if colon and place and kind == "tensorboard":
        return TensorBoardCallback(place)
    raise InputError(f"track = {shown(text)} is not possible: give mlflow:URI or tensorboard:FOLDER.")
