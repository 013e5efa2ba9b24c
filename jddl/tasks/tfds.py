"""Images of a TensorFlow data set that has been prepared on disk."""

from __future__ import annotations

import os
from pathlib import Path

from jddl.records import Task
from jddl.tasks._rows import from_disk, optional

EXAMPLES = ("tfds(name='mnist')",)


def tfds(
    batch_size: int, name: str, dir: str = "", image: str = "image", label: str = "label"
) -> Task:
    """Classify the images of a data set that tensorflow_datasets has prepared; no download.

    Where there is a network, once: `tfds.builder('mnist', file_format='array_record')
    .download_and_prepare()`; ArrayRecord is the format whose rows can be read one by one. Needs
    the extra `jddl[tfds]`; TensorFlow is needed to prepare images, not here.

    A batch is {'inputs': f32[b, H, W, C], 'labels': i32[b]}, bytes scaled to [0, 1]; all images
    have one shape. Every tenth row of 'train' is validation; rows are read when they are wanted,
    in an order that grain draws from (seed, epoch). Loss: cross-entropy.

    Args:
      batch_size: images in a global training batch (the run's `batch_size`).
      name: 'mnist', 'mnist/3.0.1' or 'name/config/version'; without a version the highest there.
      dir: the folder of data sets; '' is $TFDS_DATA_DIR or else ~/tensorflow_datasets.
      image: name of the feature that is the image.
      label: name of the feature that is the class, a `ClassLabel`.

    Raises:
      ValueError: a package is missing; the data set is not on disk, in another format, or lacks
        a split or a feature.
    """
    package = optional("tensorflow_datasets", "tfds")
    chosen = dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    folder = _prepared(Path(chosen).expanduser(), name)
    try:
        builder = package.builder_from_directory(str(folder))
        there = ", ".join(builder.info.splits)
        if not {"train", "test"} <= set(builder.info.splits):
            raise ValueError(f"the splits train and test are wanted; there are {there}")
        sources = {split: builder.as_data_source(split=split) for split in ("train", "test")}
    except NotImplementedError:
        raise ValueError(
            f"{folder} is not in a format whose rows can be read one by one: prepare it with "
            "file_format='array_record'"
        ) from None
    features = builder.info.features
    for feature in (image, label):
        if feature not in features:
            raise ValueError(f"{folder} has no feature {feature!r}; it has {', '.join(features)}")
    classes = getattr(features[label], "num_classes", None)
    if not classes:
        raise ValueError(f"{folder}: {label!r} is no ClassLabel, so classes are unknown")
    return from_disk(sources, image, label, classes, batch_size)


def _prepared(root: Path, name: str) -> Path:
    """The folder of the version that `name` states, or of the highest one there."""
    folder = root / name
    versions = [folder, *folder.glob("*")] if folder.is_dir() else []
    found = [p for p in versions if (p / "dataset_info.json").is_file()]
    if not found:
        raise ValueError(
            f"no prepared data set {name!r} in {root}, and nothing is downloaded: where there is "
            f"a network, tfds.builder({name!r}, file_format='array_record')"
            ".download_and_prepare() writes it"
        )

    def version(path: Path) -> tuple[int, ...]:
        parts = path.name.split(".")
        return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else ()

    return max(found, key=version)
