"""What the rest of the program may ask of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.coding import Gram
    from codedfl.data import Task


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of a linear model: ``A(eta) - y^T eta`` per sample, up to a constant, with ``eta = W^T x``.

    The mean function is ``mu = grad A``, so that the gradient is ``X^T (mu(X W) - Y)`` and the Hessian ``x x^T (x) V(eta)`` with
    ``V = grad mu``. Engine, schemes and evaluation ask a loss and never name it. A new loss is a file with a subclass and a line
    of the registry; what it says of itself is constant, so two losses of the same class and fields are the same.

    Example:
        >>> import numpy as np
        >>> from codedfl.losses import SQUARE
        >>> SQUARE.gradient(np.array([[1.0, 2.0]]), np.array([[1.0]]), np.zeros((2, 1))).ravel()
        array([-1., -2.])
    """

    name: ClassVar[str]
    """Its name in options."""
    tasks: ClassVar[tuple[Task, ...]]
    """The tasks that it is for."""
    curvature: ClassVar[float]
    """The largest second derivative with respect to the outputs: the largest eigenvalue that ``V`` can have."""
    quadratic: ClassVar[bool] = False
    """Whether its sum over data follows from the Gram matrix, so that the data need not be read."""
    in_kernel: ClassVar[bool] = False
    """Whether the compiled kernel takes its steps."""
    logits: ClassVar[bool] = False
    """Whether outputs are logits of a softmax rather than estimates of the labels themselves."""
    clip_share: ClassVar[float]
    """Clip norm of a sample's gradient in private descent, in units of the product of the typical norms of its features and its
    labels. Residuals start at the size of the labels and shrink, so a smaller norm saves noise; it makes the loss linear in
    residuals beyond it, as Huber's is."""
    noise_share: ClassVar[float]
    """Standard deviation that the noise of private descent may have in an output, in units of the labels, or of logits. It sets
    the ridge."""

    @abstractmethod
    def value(self, outputs: FloatArray, labels: FloatArray) -> float:
        """Return the loss summed over rows, added up in float64.

        Args:
            outputs: ``eta``, (l, o).
            labels: ``y``, (l, o).
        """

    @abstractmethod
    def predictions(self, outputs: FloatArray) -> FloatArray:
        """Return ``mu(eta)``, the mean of a label, (..., o), in the precision of the outputs; possibly the outputs themselves."""

    @abstractmethod
    def link(self, means: FloatArray) -> FloatArray:
        """Return outputs ``eta`` with ``mu(eta)`` as given, (..., o)."""

    @abstractmethod
    def curvature_weights(self, outputs: FloatArray) -> FloatArray:
        """Return the mean curvature of each row, (...): the trace of ``V`` over the number of directions that change anything."""

    def residuals(self, outputs: FloatArray, labels: FloatArray) -> FloatArray:
        """Return ``mu(eta) - y``, the derivative with respect to the outputs; it may overwrite ``outputs``.

        Args:
            outputs: ``eta``, (..., o).
            labels: ``y``, in any shape that broadcasts to that of the outputs.
        """
        residuals = self.predictions(outputs)
        residuals -= labels
        return residuals

    def gradient(self, features: FloatArray, labels: FloatArray, model: FloatArray) -> FloatArray:
        """Return ``X^T (mu(X W) - Y)``, the gradient summed over rows, (d, o)."""
        gradient: FloatArray = features.T @ self.residuals(features @ model, labels)
        return gradient

    def smoothness(self, gram: Gram) -> float:
        """Return ``L = c lambda_max(X^T X)``, a bound on the curvature of the loss summed over the data."""
        return self.curvature * gram.smoothness

    def optimum(self, gram: Gram) -> FloatArray | None:  # noqa: ARG002 (for subclasses)
        """Return the model of least loss in closed form, (d, o); None if there is no closed form."""
        return None
