"""Linear regression with a known answer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from jddl.records import Context, Sums, Task
from jddl.tasks._classify import shuffled
from jddl.tasks._weights import weighted

EXAMPLES = ("least_squares", "least_squares(dim=16, noise=0.0)")
TRAIN, HELD_OUT = 4096, 512


def least_squares(batch_size: int, dim: int = 8, noise: float = 0.1) -> Task:
    """y = <w, x> + b + noise, x and w standard normal: the smallest task with a closed form.

    A batch is {'inputs': f32[b, dim], 'labels': f32[b]}. Loss: (1/2) (prediction - y)^2 a example.

    Args:
      batch_size: examples in a global training batch (the run's `batch_size`).
      dim: number of features.
      noise: standard deviation of the noise on y.
    """
    if dim < 1 or noise < 0:
        raise ValueError(f"dim is at least 1 and noise 0, not {dim} and {noise}")

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        x, y = _data(dim, noise)[split]
        if split != "train":
            return {"inputs": x, "labels": y}
        chosen = shuffled(len(x), batch_size, step, seed)
        return {"inputs": x[chosen], "labels": y[chosen]}

    return Task(batch, _half_square, _no_metrics, {"validation": 1, "test": 1}, (dim,), 1)


def _half_square(outputs: Any, batch: Any, ctx: Context) -> tuple[Any, Any]:
    errors = outputs[:, 0] - batch["labels"]
    return weighted(0.5 * errors**2, batch)


def _no_metrics(outputs: Any, batch: Any, ctx: Context) -> Sums:
    return {}


@cache
def _data(dim: int, noise: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    w, bias = rng.standard_normal(dim), rng.standard_normal()
    x = rng.standard_normal((TRAIN + 2 * HELD_OUT, dim))
    y = x @ w + bias + noise * rng.standard_normal(len(x))
    x, y = x.astype(np.float32), y.astype(np.float32)
    test, held = slice(TRAIN + HELD_OUT, None), slice(TRAIN, TRAIN + HELD_OUT)
    return {
        "train": (x[:TRAIN], y[:TRAIN]),
        "validation": (x[held], y[held]),
        "test": (x[test], y[test]),
    }
