"""The folds of digits: each image is tested once, and fold 0 of 5 is the fixed split."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from jddl import catalog


def task_of(spec, batch_size=240):
    return catalog.make("tasks", spec, {"batch_size": batch_size})


def test_the_fixed_split_is_the_first_fold():
    data = load_digits()
    order = np.random.default_rng(0).permutation(1797)
    images = (data.images / 16).astype(np.float32)[order][..., None]
    rows = np.random.default_rng([0, 0]).permutation(1257)[:240]
    wanted = {"test": images[:360], "validation": images[360:540], "train": images[540:][rows]}
    for spec in ("digits", "digits(fold=0)"):
        for split, pixels in wanted.items():
            np.testing.assert_array_equal(task_of(spec).batch(0, split, 0)["inputs"], pixels)


@pytest.mark.parametrize("folds", [3, 5])
def test_each_image_is_tested_once_and_is_in_one_part(folds):
    tested, whole = [], load_digits().images.sum()
    for fold in range(folds):
        sizes = {"test": 0, "validation": 0, "train": 0}
        pixels = 0.0
        task = task_of(f"digits(fold={fold}, folds={folds})", 1797 - 180 - -(-1797 // folds))
        for split in sizes:
            batch = task.batch(0, split, 0)
            sizes[split], pixels = len(batch["labels"]), pixels + 16 * batch["inputs"].sum()
        assert sizes["validation"] == 180 and sizes["test"] in (1797 // folds, 1797 // folds + 1)
        if sum(sizes.values()) == 1797:  # a batch held all training images
            assert pixels == whole
        tested.append(task.batch(0, "test", 0)["inputs"])
    assert sum(map(len, tested)) == 1797 and 16 * sum(x.sum() for x in tested) == whole


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("fold=5", "from 0 to 4, or -1, not 5"),
        ("fold=-2", "not -2"),
        ("folds=1, fold=0", "from 2 to 100"),
        ("folds=4", "no effect without a fold"),
    ],
)
def test_wrong_folds_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        task_of(f"digits({arguments})")
