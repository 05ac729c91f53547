"""Algorithm 1 of the paper, line by line: slow and obviously right.

All randomness comes in from outside, as the paper's own matrices: G_i, N_i, the diagonals of S_{k,u}^{(i)} and S_{k,u}^s,
the batch sizes b_k^i and the indicators 1_k^{(i)}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.typing import FloatArray


@dataclass
class Draws:
    """What Algorithm 1 leaves to chance.

    Args:
        G: projection of each device, (c, l_i).
        N: noise of each device, (c, d).
        S: S[k][i][u] is the diagonal of S_{k,u}^{(i)}, of zeros and ones, (l_i,).
        S_server: S_server[k][u] is the diagonal of S_{k,u}^s, (c,).
        b: b[k][i] is the batch size b_k^i.
        arrived: arrived[k][i] is the indicator 1_k^{(i)}.
    """

    G: list[FloatArray]
    N: list[FloatArray]
    S: list[list[list[FloatArray]]]
    S_server: list[list[FloatArray]]
    b: list[list[int]]
    arrived: list[list[bool]]


def scfl(
    X: list[FloatArray],
    Y: list[FloatArray],
    draws: Draws,
    W_0: FloatArray,
    eta: list[float],
    tau: int,
    p: FloatArray,
    b_s: int,
    sigma_squared: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return W_SCFL,K and the last iterate W_K."""
    devices = len(X)
    # // Before training starts //
    # 1: each edge device computes the local coded dataset and uploads it
    X_coded_of = [draws.G[i] @ X[i] + draws.N[i] for i in range(devices)]
    Y_coded_of = [draws.G[i] @ Y[i] for i in range(devices)]
    # 2: the server constructs the global coded dataset
    X_coded, Y_coded = sum(X_coded_of), sum(Y_coded_of)
    assert isinstance(X_coded, np.ndarray)
    assert isinstance(Y_coded, np.ndarray)
    sigma_squared_total = sum(sigma_squared)

    # // During training, at the server //
    W = [W_0]
    for k in range(len(eta)):
        # 4: broadcast W_k; the devices perform LocalTrain(W_k)
        g_hat = [local_train(X[i], Y[i], W[k], draws.S[k][i], draws.b[k][i], eta[k]) for i in range(devices)]
        # 5-7: tau SGD steps on the coded data
        W_s = W[k]
        g_hat_s = np.zeros_like(W_0)
        for u in range(tau):
            S = np.diag(draws.S_server[k][u])
            X_batch, Y_batch = S @ X_coded, S @ Y_coded
            g_s = (1 / b_s) * X_batch.T @ (X_batch @ W_s - Y_batch)  # (4)
            g_o = -sigma_squared_total * W_s  # the make-up term
            g_hat_s = g_hat_s + g_s + g_o
            W_s = W_s - eta[k] * (g_s + g_o)
        # 8: aggregate, (5)
        received = np.zeros_like(W_0)
        for i in range(devices):
            if draws.arrived[k][i]:
                received = received + (1 / p[i]) * g_hat[i]
        g = 0.5 * (received + g_hat_s)
        # 9: update and keep a copy
        W.append(W[k] - eta[k] * g)
    # 11: the step-weighted average of W_0 .. W_{K-1}
    average = sum(eta[k] * W[k] for k in range(len(eta))) / sum(eta)
    assert isinstance(average, np.ndarray)
    return average, W[-1]


def local_train(X: FloatArray, Y: FloatArray, W_k: FloatArray, S: list[FloatArray], b: int, eta: float) -> FloatArray:
    """Return the accumulated gradient of LocalTrain(W_k) on one device; zero if the device sits the round out."""
    W, g_hat = W_k, np.zeros_like(W_k)
    if b == 0:
        return g_hat
    for diagonal in S:
        X_batch, Y_batch = np.diag(diagonal) @ X, np.diag(diagonal) @ Y
        g = (len(X) / b) * X_batch.T @ (X_batch @ W - Y_batch)  # (3)
        W = W - eta * g
        g_hat = g_hat + g
    return g_hat


def fedavg(X: list[FloatArray], Y: list[FloatArray], draws: Draws, W_0: FloatArray, eta: list[float]) -> FloatArray:
    """Return W_K of FedAvg (Sec. II-B): the server adds up what arrived."""
    W = W_0
    for k in range(len(eta)):
        g_hat = [local_train(X[i], Y[i], W, draws.S[k][i], draws.b[k][i], eta[k]) for i in range(len(X))]
        for i in range(len(X)):
            if not draws.arrived[k][i]:
                g_hat[i] = np.zeros_like(W)
        W = W - eta[k] * np.sum(g_hat, axis=0)
    return W
