"""Fashion-MNIST: 70,000 grey images of clothes, 28 x 28, from files on disk."""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from jddl.records import Task
from jddl.tasks._arrays import Split, in_memory

EXAMPLES = ("fashion_mnist",)
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
SIDE, CLASSES = 28, 10
IMAGES, LABELS = 0x803, 0x801  # unsigned bytes in 3 dimensions, and in 1


def fashion_mnist(batch_size: int, dir: str = "/usr/share/datasets/fashion-mnist") -> Task:
    """Ten kinds of clothes; the four IDX files of Zalando's data set, no download.

    Debian and Ubuntu have them as the package dataset-fashion-mnist, which puts them where `dir`
    points by default. Files may be compressed (`.gz`) or not. The last twelfth of the training
    file is validation: 55,000 train, 5,000 validation, 10,000 test images.

    A batch is {'inputs': f32[b, 28, 28, 1] in [0, 1], 'labels': i32[b]}; held-out images come in
    batches of 500. Loss: cross-entropy over 10 classes. Files of the same form (MNIST's) work too.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
      dir: the folder of the four files; '~' is the home folder.

    Raises:
      ValueError: a file is absent, or is no IDX file of 28 x 28 images or of labels below 10.

    Reference: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking
    machine learning algorithms", 2017.
    """
    folder = Path(dir).expanduser()
    found = {split: [_find(folder, name) for name in names] for split, names in FILES.items()}
    seen = tuple((p, p.stat().st_mtime_ns) for files in found.values() for p in files)
    return in_memory(_splits(seen), (SIDE, SIDE, 1), CLASSES, batch_size)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ValueError(
        f"no file {name} or {name}.gz in {folder}: install Debian's package dataset-fashion-mnist "
        "(apt-get install dataset-fashion-mnist), or give the folder as dir='...'"
    )


@lru_cache(maxsize=2)
def _splits(seen: tuple[tuple[Path, int], ...]) -> dict[str, Split]:
    paths = [path for path, _ in seen]
    train, test = _pair(paths[0], paths[1]), _pair(paths[2], paths[3])
    cut = len(train[0]) - len(train[0]) // 12
    (images, labels) = train
    return {
        "train": (images[:cut], labels[:cut]),
        "validation": (images[cut:], labels[cut:]),
        "test": test,
    }


def _pair(image_file: Path, label_file: Path) -> Split:
    images, labels = _idx(image_file, IMAGES), _idx(label_file, LABELS)
    if images.shape[1:] != (SIDE, SIDE):
        raise ValueError(f"{image_file} holds images of {images.shape[1:]}, not ({SIDE}, {SIDE})")
    if len(images) != len(labels):
        raise ValueError(f"{image_file} has {len(images)} images, {label_file} {len(labels)}")
    if len(images) < 12 or labels.max() >= CLASSES:
        raise ValueError(f"{label_file} has under 12 labels, or one above {CLASSES - 1}")
    return images[..., None], labels


def _idx(path: Path, magic: int) -> np.ndarray:
    """An array of unsigned bytes: magic number, sizes (big-endian, 4 bytes each), values."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    head = 4 + 4 * (magic & 0xFF)
    if len(raw) < head or int.from_bytes(raw[:4], "big") != magic:
        raise ValueError(f"{path} does not start with the IDX magic number {magic:#010x}")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", magic & 0xFF, 4))
    if len(raw) - head != int(np.prod(shape)):
        raise ValueError(f"{path} has {len(raw) - head} values, its head says {shape}")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)
