"""Rows of tests/properties.py for the tasks on files and drawn data, and the model they bring."""

import contextlib
import gzip
import json
import os
import struct
import sys
import sysconfig
import tempfile
import types
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from jddl.records import Context

RNG = np.random.default_rng(0)


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def inputs_of(task, split):
    """All held-out inputs, one after the other."""
    return np.concatenate(
        [task.batch(i, split, 0)["inputs"] for i in range(task.num_batches[split])]
    )


def windows_of(text, length):
    """What all held-out windows over `text` are, cut in a loop."""
    return [list(text[i : i + length]) for i in range(0, len(text) - length, length)]


def stdlib_files(packages, modules):
    """Walked by os.walk, sorted: an independent reading of the rule in the docstring."""
    root = sysconfig.get_path("stdlib")
    found = set()
    for name in (*packages, *modules):
        if os.path.isfile(f"{root}/{name}.py") and name in modules:
            found.add(f"{name}.py")
        for at, _, files in os.walk(f"{root}/{name}"):
            inside = os.path.relpath(at, root).split(os.sep)
            if not {"test", "tests", "__pycache__"} & set(inside):
                found |= {"/".join([*inside, f]) for f in files if f.endswith(".py")}
    return [Path(root, name) for name in sorted(found)]


def python_source(factory):
    """Whole files are held out: of each twenty the tenth is validation, the last the test."""
    made_from = factory.__globals__
    files = stdlib_files(made_from["PACKAGES"], made_from["MODULES"])
    task = factory(batch_size=2, length=1000, held_out=10**6)
    for split, first in (("validation", 9), ("test", 19)):
        text = b"".join(path.read_bytes() + b"\0" for path in files[first::20])
        assert inputs_of(task, split).tolist() == windows_of(text, 1000)


def text(factory):
    """Of a file of 2,000 bytes bytes 1,800 to 1,899 are validation and the last 100 the test."""
    whole = bytes(RNG.integers(1, 256, 2000, dtype=np.uint8))
    with folder() as path:
        (path / "a.txt").write_bytes(whole)
        task = factory(batch_size=2, glob=f"{path}/*.txt", length=10)
        assert inputs_of(task, "validation").tolist() == windows_of(whole[1800:1900] + b"\0", 10)
        assert inputs_of(task, "test").tolist() == windows_of(whole[1900:] + b"\0", 10)


def write_idx(path, array):
    head = struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape)
    raw = head + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def clothes(path, train=36, test=20, suffix=".gz"):
    """Four small IDX files; returns the arrays."""
    made = {}
    for name, count in (("train", train), ("t10k", test)):
        made[name] = (
            RNG.integers(0, 256, (count, 28, 28), np.uint8),
            RNG.integers(0, 10, count, np.uint8),
        )
        write_idx(path / f"{name}-images-idx3-ubyte{suffix}", made[name][0])
        write_idx(path / f"{name}-labels-idx1-ubyte{suffix}", made[name][1])
    return made


def fashion_mnist(factory):
    """The last twelfth of the training file is validation; bytes become [0, 1]."""
    with folder() as path:
        made = clothes(path, train=60)
        task = factory(batch_size=55, dir=str(path))
        np.testing.assert_array_equal(
            inputs_of(task, "validation")[..., 0], made["train"][0][55:] / np.float32(255)
        )
        np.testing.assert_array_equal(task.batch(0, "test", 0)["labels"], made["t10k"][1])
        np.testing.assert_array_equal(
            np.sort(task.batch(0, "train", 0)["labels"]), np.sort(made["train"][1][:55])
        )


def images(factory):
    """As many classes as the largest label says, of all splits; floating images stay as they are."""
    pictures = RNG.standard_normal((20, 3, 2, 4))
    with folder() as path:
        np.savez(
            path / "a.npz",
            train_images=pictures[:15], train_labels=np.arange(15) % 3,
            test_images=pictures[15:], test_labels=np.arange(5),
        )  # fmt: skip
        task = factory(batch_size=12, npz=str(path / "a.npz"), validation=0.2)
    assert (task.inputs, task.outputs) == ((3, 2, 4), 5)
    np.testing.assert_array_equal(inputs_of(task, "test"), pictures[15:].astype(np.float32))
    both = [task.batch(0, "train", 0)["inputs"], inputs_of(task, "validation")]
    assert [len(x) for x in both] == [12, 3]
    np.testing.assert_array_equal(
        np.sort(np.concatenate(both).ravel()), np.sort(pictures[:15].astype(np.float32).ravel())
    )


def logistic(factory):
    """alpha = 0: share i has class i alone; its rows lie around that class's mean."""
    task = factory(batch_size=400, dim=5, classes=4, shares=4, alpha=0.0, separation=9.0)
    batch = task.batch(3, "train", 1)
    np.testing.assert_array_equal(batch["labels"], np.repeat(np.arange(4), 100))
    means = batch["inputs"].reshape(4, 100, 5).mean(axis=1)
    assert np.abs(np.linalg.norm(means, axis=1) - 9).max() < 0.5  # 5 standard errors
    assert task.facts["heterogeneity"] == 0.75


def recsys(factory):
    """Field f has ids of its own range; low ranks are the frequent ones."""
    task = factory(batch_size=5000, vocabulary=60, fields=3)
    ids = task.batch(0, "train", 0)["inputs"]
    np.testing.assert_array_equal(ids // 20, np.tile(np.arange(3), (5000, 1)))
    counts = np.bincount(ids.ravel() % 20, minlength=20)
    law = np.arange(1.0, 21) ** -1.1
    law /= law.sum()
    assert np.abs(counts - 15000 * law).max() < 5 * np.sqrt(15000 * law).max()


class Rows(list):
    """Rows in memory, with the features that both packages' splits state."""

    features = types.MappingProxyType(
        {"image": None, "label": types.SimpleNamespace(num_classes=7)}
    )


def rows(count, first=0):
    return Rows(
        {"image": np.full((2, 2), first + i, np.uint8), "label": (first + i) % 7}
        for i in range(count)
    )


def hugging_face(factory):
    """Rows of the named test split are the test, in order."""
    package = types.ModuleType("datasets")
    package.load_from_disk = lambda path: {"train": rows(20), "held": rows(6, first=100)}
    with folder() as path, mock.patch.dict(sys.modules, {"datasets": package}):
        task = factory(batch_size=18, path=str(path), test="held")
    found = task.batch(0, "test", 0)["inputs"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, 0, 0, 0], np.float32(range(100, 106)) / np.float32(255))
    every = task.batch(0, "train", 5)["inputs"][:, 0, 0, 0] * 255
    np.testing.assert_array_equal(np.round(np.sort(every)), [i for i in range(20) if i % 10])


def tfds(factory):
    """Without a version the highest is meant: 3.10.0 is above 3.9.0."""
    asked = []

    def builder(path):
        asked.append(Path(path).name)
        info = types.SimpleNamespace(splits={"train": 20, "test": 6}, features=Rows.features)
        return types.SimpleNamespace(
            info=info, as_data_source=lambda split: rows(info.splits[split])
        )

    package = types.ModuleType("tensorflow_datasets")
    package.builder_from_directory = builder
    with folder() as path, mock.patch.dict(sys.modules, {"tensorflow_datasets": package}):
        for version in ("3.9.0", "3.10.0"):
            (path / "mnist" / version).mkdir(parents=True)
            (path / "mnist" / version / "dataset_info.json").write_text(json.dumps({}))
        factory(batch_size=4, name="mnist", dir=str(path))
        task = factory(batch_size=4, name="mnist/3.9.0", dir=str(path))
    assert asked == ["3.10.0", "3.9.0"]
    assert (task.inputs, task.outputs, task.num_batches["test"]) == ((2, 2, 1), 7, 1)


def embedding_bag(factory):
    """Only rows of the batch have a gradient; the order of the ids does not matter."""
    model = factory((3,), 2, vocabulary=50, width=4)
    params, stats = model.init(jax.random.key(0))
    ids = np.array([[3, 17, 40], [3, 18, 49]])

    def outputs(params, ids):
        x, *_ = model.embed(params["shared"], stats, ids, Context())
        x, *_ = model.block(params["blocks"][0], stats, x, Context())
        return model.head(params["shared"], stats, x, Context())[0]

    np.testing.assert_allclose(outputs(params, ids), outputs(params, ids[:, ::-1]), atol=1e-6)
    grads = jax.grad(lambda p: jnp.sum(outputs(p, ids) ** 2))(params)
    (table,) = jax.tree.leaves(grads["shared"]["embed"])
    assert set(np.flatnonzero(np.abs(table).sum(axis=1))) == set(ids.ravel())


PROPERTIES = {
    "tasks/python_source": (python_source, ("index % EVERY", "index // EVERY")),
    "tasks/text": (text, ("- 2 * cut", "- 3 * cut")),
    "tasks/fashion_mnist": (fashion_mnist, ("len(train[0]) // 12", "len(train[0]) // 10")),
    "tasks/images": (images, ("1 + max(", "max(")),
    "tasks/logistic": (logistic, ("batch_size // shares, 0)", "batch_size // shares, 0)[::-1]")),
    "tasks/recsys": (recsys, (" * size + ranks", " + ranks")),
    "tasks/hugging_face": (hugging_face, ("splits[test]}", 'splits["train"]}')),
    "tasks/tfds": (tfds, ("tuple(int(p) for p in parts)", "tuple(parts)")),
    "models/embedding_bag": (embedding_bag, ("rows.sum(axis=1)", "rows[:, 0]")),
}
