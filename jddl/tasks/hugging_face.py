"""Images of a Hugging Face data set that lies on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jddl.records import Task
from jddl.tasks._rows import from_disk, optional

EXAMPLES = ("hugging_face(path='data/mnist')",)


def hugging_face(
    batch_size: int, path: str, image: str = "image", label: str = "label", test: str = "test"
) -> Task:
    """Classify the images of a folder that `save_to_disk` of Hugging Face's datasets wrote.

    Nothing is downloaded. Where there is a network, once:
    `datasets.load_dataset('ylecun/mnist').save_to_disk('data/mnist')`. Needs the extra
    `jddl[hugging_face]`.

    A batch is {'inputs': f32[b, H, W, C], 'labels': i32[b]}, bytes scaled to [0, 1]; all images
    have one shape. Every tenth row of 'train' is validation; rows are read when they are wanted,
    in an order that grain draws from (seed, epoch). Loss: cross-entropy.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
      path: the folder, below the working directory unless it is absolute.
      image: name of the column of images.
      label: name of the column of labels, a `ClassLabel`.
      test: name of the split to test on.

    Raises:
      ValueError: a package is missing; no such folder, split or column.
    """
    datasets = optional("datasets", "hugging_face")
    folder = Path(path).expanduser()
    try:
        splits: Any = datasets.load_from_disk(str(folder)) if folder.is_dir() else None
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}: {str(error).splitlines()[0]}") from None
    if splits is None:
        raise ValueError(
            f"no folder {path!r}, and nothing is downloaded: where there is a network, "
            f"datasets.load_dataset(NAME).save_to_disk({path!r}) writes it"
        )
    if not isinstance(splits, dict) or not {"train", test} <= set(splits):
        there = ", ".join(splits) if isinstance(splits, dict) else "one split without a name"
        raise ValueError(f"{folder} needs the splits train and {test}; it has {there}")
    features = splits["train"].features
    for column in (image, label):
        if column not in features:
            raise ValueError(f"{folder} has no column {column!r}; it has {', '.join(features)}")
    classes = getattr(features[label], "num_classes", None)
    if not classes:
        raise ValueError(f"{folder}: the column {label!r} is no ClassLabel, so classes are unknown")
    sources = {"train": splits["train"], "test": splits[test]}
    return from_disk(sources, image, label, classes, batch_size)
