"""Classification of images that lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy, shuffled

ROWS = 500  # images in a batch of held-out data
Split = tuple[np.ndarray, np.ndarray]  # images [N, H, W, C], u8 or floating; labels [N]


def scaled(images: np.ndarray) -> np.ndarray:
    """f32: unsigned bytes by 1/255 to [0, 1], floating values as they are."""
    wide = images.astype(np.float32)
    return wide / np.float32(255) if images.dtype == np.uint8 else wide


def in_memory(
    splits: Mapping[str, Split], shape: tuple[int, ...], classes: int, batch_size: int
) -> Task:
    """A Task whose images stay as they are in memory; a batch's are scaled when it is made.

    Held-out images come in batches of 500, in order.
    """

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        images, labels = splits[split]
        chosen: Any = slice(ROWS * step, ROWS * (step + 1))
        if split == "train":
            chosen = shuffled(len(images), batch_size, step, seed)
        return {"inputs": scaled(images[chosen]), "labels": labels[chosen].astype(np.int32)}

    batches = {name: -(-len(splits[name][1]) // ROWS) for name in ("validation", "test")}
    return Task(batch, cross_entropy, accuracy, batches, shape, classes)
