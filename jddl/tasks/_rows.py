"""Images that are read from disk row by row, when a batch wants them, in grain's order."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._arrays import scaled
from jddl.tasks._classify import accuracy, cross_entropy

ROWS = 500  # images in a batch of held-out data
EVERY = 10  # of as many training rows one is for validation


class Some:
    """A random-access source, seen through a list of places."""

    def __init__(self, source: Any, places: np.ndarray) -> None:
        self.source, self.places = source, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Any:
        return self.source[int(self.places[index])]


def optional(module: str, extra: str) -> Any:
    """Import a package that jddl does not require.

    Raises:
      ValueError: it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"this task needs the package {module}: pip install 'jddl[{extra}]' ({error})"
        ) from None


def from_disk(
    sources: Mapping[str, Any], image: str, label: str, classes: int, batch_size: int
) -> Task:
    """A Task over rows {image: array or PIL image, label: int} that are all of one shape.

    Every tenth row of 'train', from the first, is validation. Training order: grain shuffles each
    epoch anew from (seed, epoch) without writing a permutation down, so any step's batch is read
    directly, however many rows there are; batches run over the ends of epochs.

    Args:
      sources: 'train' and 'test', each with `len` and integer indexing.
      image, label: names in a row.
      classes: labels are below it.
      batch_size: rows in a global training batch.

    Raises:
      ValueError: grain is missing; too few rows; a row of another form.
    """
    grain = optional("grain", "data")
    places = np.arange(len(sources["train"]))
    if len(places) < 2 or not len(sources["test"]):
        raise ValueError("there are fewer than two training rows, or no test rows")
    parts = {
        "train": Some(sources["train"], places[places % EVERY != 0]),
        "validation": Some(sources["train"], places[::EVERY]),
        "test": Some(sources["test"], np.arange(len(sources["test"]))),
    }

    def read(row: Any) -> dict[str, Any]:
        if image not in row or label not in row:
            raise ValueError(f"a row has {', '.join(row)}; image={image!r}, label={label!r}")
        picture, number = np.asarray(row[image]), int(row[label])
        picture = picture[..., None] if picture.ndim == 2 else picture
        if picture.ndim != 3 or not 0 <= number < classes:
            raise ValueError(f"an image of shape {picture.shape}, label {number} of {classes}")
        return {"inputs": scaled(picture), "labels": np.int32(number)}

    shape = read(parts["train"][0])["inputs"].shape

    def checked(row: Any) -> dict[str, Any]:
        example = read(row)
        if example["inputs"].shape != shape:
            raise ValueError(
                f"images of shapes {shape} and {example['inputs'].shape}; one shape is wanted"
            )
        return example

    @lru_cache(maxsize=2)
    def training(seed: int) -> Any:
        ordered = grain.MapDataset.source(parts["train"]).shuffle(seed=seed).repeat()
        return ordered.map(checked).batch(batch_size)

    held_out = {
        name: grain.MapDataset.source(parts[name]).map(checked).batch(ROWS)
        for name in ("validation", "test")
    }

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        found = training(seed)[step] if split == "train" else held_out[split][step]
        return dict(found)

    batches = {name: len(dataset) for name, dataset in held_out.items()}
    return Task(batch, cross_entropy, accuracy, batches, shape, classes)
