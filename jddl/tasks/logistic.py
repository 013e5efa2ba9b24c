"""Logistic regression whose workers see different classes, as different as one likes."""

from __future__ import annotations

from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy

EXAMPLES = (
    "logistic(alpha=0.1)",
    "logistic(alpha=0.0, shares=4)",
    "logistic(alpha=None, classes=2, dim=3)",
)
HELD_OUT = 2048
SPLITS = {"train": 0, "validation": 1, "test": 2}


def logistic(
    batch_size: int,
    dim: int = 16,
    classes: int = 10,
    shares: int = 8,
    alpha: float | None = 1.0,
    separation: float = 2.0,
) -> Task:
    """Softmax regression on drawn data whose `shares` have label mixtures q_i ~ Dirichlet(alpha 1).

    Row r of share i has label y ~ q_i and x = mu_y + z, z standard normal, |mu_y| = separation.
    Bayes' rule for a mixture q is then a linear model: log p(y | x) = mu_y x - |mu_y|^2 / 2 +
    log q_y + constant. The mixtures and mu are fixed; rows are new at each step, drawn from
    (seed, step).

    The global batch is cut into `shares` equal pieces in order, piece i from share i: on a mesh
    data=shares a worker sees one mixture, on fewer workers several; the batch does not depend on
    the mesh. Held-out rows come from the mean of the mixtures, which is what all shares together
    train on. The summary states `heterogeneity`: the mean total variation distance of a share's
    mixture from that mean, 0 where all are alike, 1 - 1/shares where no two have a class in common.

    A batch is {'inputs': f32[b, dim], 'labels': i32[b]}. Loss: cross-entropy.

    Args:
      batch_size: rows in a global training batch (the run's `batch_size`), a multiple of shares.
      dim: number of features.
      classes: number of classes; 2 is the binary case.
      shares: number of label mixtures.
      alpha: concentration. Small: a share has few classes; large: all shares have all classes.
        0, the limit: share i has the one class i mod classes. None, the other limit: every share
        has each class equally often.
      separation: length of the classes' means; noise has standard deviation 1.

    Raises:
      ValueError: arguments out of range; a batch that does not divide over the shares.

    Reference: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for
    federated visual classification", 2019. Differences: rows are drawn, not dealt from a fixed
    set, and the prior is uniform.
    """
    if dim < 1 or classes < 2 or shares < 1:
        raise ValueError(
            f"dim and shares are at least 1 and classes 2, not {dim}, {shares} and {classes}"
        )
    if (alpha is not None and not alpha >= 0) or separation < 0:
        raise ValueError(f"alpha and separation are at least 0, not {alpha} and {separation}")
    if batch_size % shares:
        raise ValueError(
            f"batch_size={batch_size} does not divide over shares={shares}; "
            f"{max(shares, batch_size // shares * shares)} does"
        )
    mixtures, mu = _mixtures(shares, classes, alpha), _means(dim, classes, separation)
    mean = mixtures.mean(axis=0)

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        train = split == "train"
        # Held-out rows are the same for all seeds.
        rng = np.random.default_rng([SPLITS[split], seed if train else 0, step])
        rows = np.repeat(mixtures, batch_size // shares, 0) if train else mean[None]
        size = batch_size if train else HELD_OUT
        edges = np.cumsum(rows, axis=1)[:, :-1]
        labels = (rng.random((size, 1)) >= edges).sum(axis=1)
        inputs = mu[labels] + rng.standard_normal((size, dim))
        return {"inputs": inputs.astype(np.float32), "labels": labels.astype(np.int32)}

    facts = {"heterogeneity": float(np.abs(mixtures - mean).sum(axis=1).mean() / 2)}
    batches = {"validation": 1, "test": 1}
    return Task(batch, cross_entropy, accuracy, batches, (dim,), classes, facts)


def _mixtures(shares: int, classes: int, alpha: float | None) -> np.ndarray:
    """f64[shares, classes]: rows are the label mixtures."""
    if alpha is None or np.isinf(alpha):
        return np.full((shares, classes), 1 / classes)
    if alpha == 0:
        return np.eye(classes)[np.arange(shares) % classes]
    return np.random.default_rng([3, shares, classes]).dirichlet(np.full(classes, alpha), shares)


def _means(dim: int, classes: int, separation: float) -> np.ndarray:
    """f64[classes, dim]: random directions of the one length `separation`."""
    mu = np.random.default_rng([4, dim, classes]).standard_normal((classes, dim))
    return separation * mu / np.linalg.norm(mu, axis=1, keepdims=True)
