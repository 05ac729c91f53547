"""CCFL with dense matrices: slow and obviously right.

Every device has its own d x d matrix ``H^_i`` and its own d x o intercept ``b_i``; the preconditioner is a d x d matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from codedfl.typing import FloatArray

Arrival = tuple[int, FloatArray, int]
"""The index of a device, its gradient and its batch size."""


def nystrom(Y: FloatArray, Omega: FloatArray, shift: float = 0.0) -> FloatArray:
    """``(Y + s Omega) (Omega^T (Y + s Omega))^-1 (Y + s Omega)^T - s I`` within its range, d x d."""
    A = Y + shift * Omega
    dense: FloatArray = A @ np.linalg.pinv(Omega.T @ A, rcond=1e-13) @ A.T
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    top = np.argsort(values)[::-1][: Omega.shape[1]]
    kept: FloatArray = (vectors[:, top] * np.maximum(values[top] - shift, 0.0)) @ vectors[:, top].T
    return kept


@dataclass
class Dense:
    """What the server knows of the curvature.

    Args:
        H: ``H^_i`` of each device.
        P_inverse: the inverse of the preconditioner without damping.
        b: ``b_i`` of each device.
        damping: ``mu``.
    """

    H: list[FloatArray]
    P_inverse: FloatArray
    b: list[FloatArray]
    damping: float


def curvature(
    Omega: FloatArray,
    products: FloatArray,
    label_products: FloatArray,
    energy: FloatArray,
    rows: FloatArray,
    samples: FloatArray,
) -> Dense:
    """The model of all devices from sketches without noise."""
    d, r = Omega.shape
    total = nystrom(products.sum(axis=0), Omega, shift=1e-8 * float(np.linalg.norm(products.sum(axis=0), 2)))
    values, vectors = np.linalg.eigh(total)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = max(1, min(int(5 / 6 * r), int(np.sum(values[:r] > 0)), r - 1))
    damping = max(2.0 * values[kept], 1e-6 * values[0])
    inside = vectors[:, :kept] @ vectors[:, :kept].T
    outside = np.eye(d) - inside
    blocks = [inside @ nystrom(sent, Omega) @ inside for sent in products]
    tails = [0.4 * max(e - float(np.trace(block)), 0.0) / (d - kept) for e, block in zip(energy, blocks, strict=True)]
    speaking = [i for i in range(len(rows)) if rows[i] > 0]
    for i in range(len(rows)):
        if i not in speaking:
            share = samples[i] / sum(samples[j] for j in speaking)
            blocks[i] = share * sum((blocks[j] for j in speaking), np.zeros((d, d)))
            tails[i] = share * sum(tails[j] for j in speaking)
    H = [block + tail * outside for block, tail in zip(blocks, tails, strict=True)]
    P_inverse = inside @ total @ inside + sum(tails) * outside
    return Dense(H, P_inverse, [inside @ sent for sent in label_products], float(damping))


@dataclass
class Memory:
    """``h_i(W) = H^_i W - b_i`` of every device, with the rows behind it."""

    H: list[FloatArray]
    b: list[FloatArray]
    rows: list[float]
    samples: list[float]

    def hear(self, arrived: Sequence[Arrival], W: FloatArray) -> None:
        """Average ``b_i`` over what the device computed last, a third of its rows or one batch."""
        for i, gradient, batch in arrived:
            before = self.rows[i]
            self.rows[i] = min(before + batch, max(self.samples[i] / 3, batch))
            alpha = min(batch / self.rows[i], 0.5) if before > 0 else 1.0
            self.b[i] = (1 - alpha) * self.b[i] + alpha * (self.H[i] @ W - gradient)

    def gradient(self, W: FloatArray) -> FloatArray:
        """Add up ``h_i(W)`` over devices of which anything is known."""
        total = np.zeros_like(W)
        for H, b, rows in zip(self.H, self.b, self.rows, strict=True):
            if rows > 0:
                total = total + H @ W - b
        return total

    def copy(self) -> Memory:
        """Remember what is remembered now."""
        return Memory(self.H, list(self.b), list(self.rows), self.samples)


@dataclass
class Server:
    """The server's side of CCFL."""

    memory: Memory
    P_inverse: FloatArray
    damping: float
    W: FloatArray
    iterates: list[FloatArray] = field(default_factory=list)
    first: float = 0.0
    least: float = np.inf
    dampings: int = 0

    def __post_init__(self) -> None:
        self.good = (self.W, self.memory.copy())

    def round(self, arrived: Sequence[Arrival], eta: float = 1.0) -> None:
        """Take one round."""
        self.memory.hear(arrived, self.W)
        G = self.memory.gradient(self.W)
        step = np.linalg.solve(self.P_inverse + self.damping * np.eye(len(G)), G)
        decrement = float(np.trace(G.T @ step))
        self.first = self.first or decrement
        if decrement > 8 * self.least and decrement > 0.1 * self.first:
            self.W, self.memory = self.good[0], self.good[1].copy()
            self.damping, self.least, self.iterates = 4 * self.damping, np.inf, []
            self.dampings += 1
            return
        if decrement < self.least:
            self.least, self.good = decrement, (self.W, self.memory.copy())
        self.W = self.W - eta * step
        self.iterates.append(self.W)

    @property
    def average(self) -> FloatArray:
        """Iterates, weighted by ``k (k + 1) (k + 2) (k + 3)``, the discrete fourth power."""
        if not self.iterates:
            return self.good[0]
        weights = [k * (k + 1.0) * (k + 2.0) * (k + 3.0) for k in range(1, len(self.iterates) + 1)]
        total: FloatArray = sum((w * W for w, W in zip(weights, self.iterates, strict=True)), np.zeros_like(self.W))
        return total / sum(weights)
