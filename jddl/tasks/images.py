"""Images of the user's own from one .npz file."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from jddl.records import Task
from jddl.tasks._arrays import Split, in_memory

EXAMPLES = ("images(npz='images.npz')", "images(npz='images.npz', validation=0.2)")
NAMES = ("train_images", "train_labels", "test_images", "test_labels")


def images(batch_size: int, npz: str, validation: float = 0.1) -> Task:
    """Classify the images of a file that `numpy.savez` wrote with four named arrays.

    train_images, test_images: [N, H, W] or [N, H, W, C]; unsigned bytes, which are divided by 255,
    or floating values, which are taken as they are. train_labels, test_labels: integers [N] from
    0. Validation is cut from the training images by one fixed permutation.

    A batch is {'inputs': f32[b, H, W, C], 'labels': i32[b]}; held-out images come in batches of
    500. Loss: cross-entropy over max(label) + 1 classes.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
      npz: the file, below the working directory unless the path is absolute.
      validation: share of the training images, in (0, 1).

    Raises:
      ValueError: no such file, or not these arrays in it.
    """
    if not 0 < validation < 1:
        raise ValueError(f"validation is in (0, 1), not {validation}")
    path = Path(npz).expanduser()
    if not path.is_file():
        raise ValueError(
            f"no file {npz!r}; numpy.savez('{npz}', {', '.join(f'{n}=...' for n in NAMES)}) "
            "writes one"
        )
    splits = _splits(path, path.stat().st_mtime_ns, validation)
    classes = 1 + max(int(labels.max()) for _, labels in splits.values())
    shape = splits["train"][0].shape[1:]
    return in_memory(splits, shape, classes, batch_size)


@lru_cache(maxsize=2)
def _splits(path: Path, mtime: int, validation: float) -> dict[str, Split]:
    del mtime  # part of the cache's key: a changed file is read again
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file}
    except (OSError, EOFError, zipfile.BadZipFile, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no .npz file of plain arrays: {error}") from None
    missing = [name for name in NAMES if name not in arrays]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays)}")
    train, test = (_checked(path, part, arrays) for part in ("train", "test"))
    if train[0].shape[1:] != test[0].shape[1:]:
        raise ValueError(
            f"{path}: train_images are {train[0].shape[1:]}, test_images {test[0].shape[1:]}"
        )
    count = max(1, round(validation * len(train[0])))
    if count >= len(train[0]):
        raise ValueError(f"{path}: {len(train[0])} training images are too few to cut validation")
    order = np.random.default_rng(0).permutation(len(train[0]))
    held, rest = order[:count], order[count:]
    return {
        "train": (train[0][rest], train[1][rest]),
        "validation": (train[0][held], train[1][held]),
        "test": test,
    }


def _checked(path: Path, part: str, arrays: dict[str, np.ndarray]) -> Split:
    pictures, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if pictures.ndim not in (3, 4) or not (
        pictures.dtype == np.uint8 or np.issubdtype(pictures.dtype, np.floating)
    ):
        raise ValueError(
            f"{path}: {part}_images is [N, H, W] or [N, H, W, C], uint8 or floating, "
            f"not {pictures.dtype}{list(pictures.shape)}"
        )
    if labels.shape != (len(pictures),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{path}: {part}_labels is integers [{len(pictures)}], "
            f"not {labels.dtype}{list(labels.shape)}"
        )
    if not len(labels) or labels.min() < 0:
        raise ValueError(f"{path}: {part}_labels is empty or has a label below 0")
    return pictures[..., None] if pictures.ndim == 3 else pictures, labels
