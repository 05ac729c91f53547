"""Trained models: on raw inputs, on disk, held against rows, and exported."""

from codedfl.models._evaluation import ModelEvaluation, Part, evaluate_file, evaluate_model
from codedfl.models._onnx import export_onnx
from codedfl.models._predictor import Predictor, probabilities
from codedfl.models._rows import LabelledRows, read_inputs, read_labelled

__all__ = [
    "LabelledRows",
    "ModelEvaluation",
    "Part",
    "Predictor",
    "evaluate_file",
    "evaluate_model",
    "export_onnx",
    "probabilities",
    "read_inputs",
    "read_labelled",
]
