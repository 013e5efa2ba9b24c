"""Handwritten digits: 1,797 real images of 8 x 8 pixels."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy, shuffled

EXAMPLES = ("digits",)
TEST, VALIDATION = 360, 180


def digits(batch_size: int) -> Task:
    """scikit-learn's digits (UCI optical recognition of handwritten digits), no download.

    Fixed split by one permutation: 360 test, 180 validation, 1,257 training images. A batch is
    {'inputs': f32[b, 8, 8, 1] in [0, 1], 'labels': i32[b]}. Loss: cross-entropy over 10 classes.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
    """

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        images, labels = _splits()[split]
        if split != "train":
            return {"inputs": images, "labels": labels}
        chosen = shuffled(len(images), batch_size, step, seed)
        return {"inputs": images[chosen], "labels": labels[chosen]}

    return Task(batch, cross_entropy, accuracy, {"validation": 1, "test": 1}, (8, 8, 1), 10)


@cache
def _splits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits  # half a second: only when data is wanted

    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], data.target[order].astype(np.int32)
    bounds = [0, TEST, TEST + VALIDATION, len(images)]
    names = ("test", "validation", "train")
    return {
        name: (images[a:b], labels[a:b])
        for name, a, b in zip(names, bounds[:-1], bounds[1:], strict=True)
    }
