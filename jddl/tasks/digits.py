"""Handwritten digits: 1,797 real images of 8 x 8 pixels."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy, shuffled

EXAMPLES = ("digits", "digits(fold=4)", "digits(fold=2, folds=3)")
VALIDATION = 180


def digits(batch_size: int, fold: int = -1, folds: int = 5) -> Task:
    """scikit-learn's digits (UCI optical recognition of handwritten digits), no download.

    Fixed split by one permutation: 360 test, 180 validation, 1,257 training images. A batch is
    {'inputs': f32[b, 8, 8, 1] in [0, 1], 'labels': i32[b]}. Loss: cross-entropy over 10 classes.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
      fold: -1 for the fixed split; else the test images are this one, from 0, of `folds` parts of
        the permuted 1,797, the next 180 (past the end: from the start) are the validation images,
        and all others the training images. fold=0 of 5 is the fixed split.
      folds: parts for cross-validation, which differ by at most one image.

    Raises:
      ValueError: a fold that is not there; folds outside 2 to 100, or without a fold.
    """
    if not 2 <= folds <= 100:
        raise ValueError(f"digits: folds is from 2 to 100, not {folds}")
    if not -1 <= fold < folds:
        raise ValueError(f"digits: fold is from 0 to {folds - 1}, or -1, not {fold}")
    if fold == -1 and folds != 5:
        raise ValueError(f"digits: folds={folds} has no effect without a fold")

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        images, labels = _splits(max(fold, 0), folds)[split]
        if split != "train":
            return {"inputs": images, "labels": labels}
        chosen = shuffled(len(images), batch_size, step, seed)
        return {"inputs": images[chosen], "labels": labels[chosen]}

    return Task(batch, cross_entropy, accuracy, {"validation": 1, "test": 1}, (8, 8, 1), 10)


@cache
def _splits(fold: int, folds: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    images, labels = _permuted()
    parts = np.array_split(np.arange(len(images)), folds)
    after = np.roll(np.arange(len(images)), -parts[fold][0])  # from the fold's first image on
    bounds = np.cumsum([len(parts[fold]), VALIDATION])
    split = zip(("test", "validation", "train"), np.split(after, bounds), strict=True)
    return {name: (images[rows], labels[rows]) for name, rows in split}


@cache
def _permuted() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # half a second: only when data is wanted

    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], data.target[order].astype(np.int32)
