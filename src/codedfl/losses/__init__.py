"""Losses of a linear model, one file each."""

from codedfl.losses._loss import Loss
from codedfl.losses._registry import LOSSES, make_loss
from codedfl.losses._softmax import SOFTMAX, Softmax
from codedfl.losses._square import SQUARE, Square

__all__ = ["LOSSES", "SOFTMAX", "SQUARE", "Loss", "Softmax", "Square", "make_loss"]
