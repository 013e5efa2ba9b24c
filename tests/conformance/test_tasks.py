"""What every task promises: batches from (step, split, seed) alone, and sums that respect weights.

To debug: `catalog.make("tasks", SPEC, {"batch_size": 24}).batch(0, "train", 0)`.
"""

import inspect
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jddl import catalog
from jddl.records import Context
from jddl.tasks._rows import from_disk
from jddl.tasks._weights import pad
from tests.properties_tasks import clothes, rows

ROOT = Path(__file__).resolve().parents[2]
BATCH = 24
# Their data lie outside: small files stand in for them, or rows in memory.
OUTSIDE = {"fashion_mnist", "images", "hugging_face", "tfds"}
INSIDE = [e for e in catalog.examples("tasks") if e.split("(")[0] not in OUTSIDE]
TASKS = [*INSIDE, "fashion_mnist", "images", "rows"]
# Ids drawn afresh and windows of text may be alike in two splits: tests/test_task_data.py.
DISCRETE = ("recsys", "text", "python_source", "rows")


@pytest.fixture(params=TASKS)
def make(request, tmp_path, monkeypatch):
    """() -> Task, built anew at each call."""
    monkeypatch.chdir(ROOT)
    spec = request.param
    if spec == "fashion_mnist":
        clothes(tmp_path, train=60)
        spec = f"fashion_mnist(dir={str(tmp_path)!r})"
    if spec == "images":
        rng = np.random.default_rng(1)
        arrays = {
            f"{part}_{kind}": rng.integers(0, 200, shape, np.uint8)
            for part, count in (("train", 50), ("test", 20))
            for kind, shape in (("images", (count, 5, 4)), ("labels", (count,)))
        }
        np.savez(tmp_path / "a.npz", **arrays)
        spec = f"images(npz={str(tmp_path / 'a.npz')!r})"
    if spec == "rows":  # what tfds and hugging_face are made of
        sources = {"train": rows(70), "test": rows(30)}
        return lambda: from_disk(sources, "image", "label", 7, BATCH)
    return lambda: catalog.make("tasks", spec, {"batch_size": BATCH})


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)


def test_shapes_types_and_facts(make):
    task = make()
    assert list(inspect.signature(task.batch).parameters) == ["step", "split", "seed"]
    assert json.loads(json.dumps(dict(task.facts))) == dict(task.facts)
    for split in ("train", "validation", "test"):
        count = 1 if split == "train" else task.num_batches[split]
        assert count >= 1
        for batch in (task.batch(i, split, 0) for i in range(count)):
            assert batch["inputs"].shape[1:] == task.inputs
            assert len(batch["inputs"]) == len(batch["labels"]) >= 1
            assert split != "train" or len(batch["labels"]) == BATCH
            for x in (batch["inputs"], batch["labels"]):
                assert isinstance(x, np.ndarray) and x.dtype in (np.float32, np.int32)
            if batch["labels"].dtype == np.int32:
                assert 0 <= batch["labels"].min() and batch["labels"].max() < task.outputs
            if batch["inputs"].dtype == np.int32:
                assert 0 <= batch["inputs"].min()
                assert batch["inputs"].max() < task.facts["vocabulary"]


def test_a_batch_depends_on_step_split_and_seed_alone(make):
    """Also after other batches, in another build, with NumPy's global state elsewhere."""
    task, again = make(), make()
    steps = (0, 1, 2, 7, 40)  # over the ends of epochs too
    first = [task.batch(s, "train", 3) for s in steps]
    for batch in first:
        assert not same(batch, task.batch(0, "train", 4))
    assert not any(same(first[0], other) for other in first[1:])
    kept = [{k: v.copy() for k, v in batch.items()} for batch in first]
    for batch in first:
        for x in batch.values():
            x.fill(0)  # what a caller does to its batch is not seen by the next
    for s, before in reversed(list(zip(steps, kept, strict=True))):
        assert same(before, again.batch(s, "train", 3))
        assert same(before, task.batch(s, "train", 3))
    for split in ("validation", "test"):
        assert same(task.batch(0, split, 0), again.batch(0, split, 9))


def test_going_on_at_a_step_gives_the_same_order(make):
    whole = [make().batch(s, "train", 1) for s in range(6)]
    resumed = make()
    assert all(same(whole[s], resumed.batch(s, "train", 1)) for s in range(3, 6))


def test_rows_that_weigh_nothing_do_not_count(make):
    task = make()
    batch = task.batch(0, "train", 0)
    padded = pad(batch, 7)
    assert len(padded["labels"]) == 28
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((28, *batch["labels"].shape[1:], task.outputs)).astype(np.float32)
    plain = {"loss": task.loss(jnp.asarray(outputs[:BATCH]), batch, Context())}
    plain |= task.metrics(jnp.asarray(outputs[:BATCH]), batch, Context())
    spoiled = {k: v.copy() for k, v in padded.items()}
    spoiled["labels"][BATCH:] = 0
    outputs[BATCH:] = 1e3
    found = {"loss": task.loss(jnp.asarray(outputs), spoiled, Context())}
    found |= task.metrics(jnp.asarray(outputs), spoiled, Context())
    for name, (total, weight) in plain.items():
        assert float(weight) == float(found[name][1])
        np.testing.assert_allclose(total, found[name][0], rtol=1e-5)
    assert isinstance(plain["loss"][1], float)  # nothing travels for it


def test_a_weight_of_two_is_the_row_twice(make):
    task = make()
    batch = {k: v[:3] for k, v in task.batch(0, "train", 0).items()}
    outputs = np.random.default_rng(0).standard_normal((*batch["labels"].shape, task.outputs))
    twice = np.array([0, 1, 1, 2])
    one = task.loss(
        jnp.asarray(outputs), batch | {"weight": np.array([1, 2, 1], np.float32)}, Context()
    )
    two = task.loss(jnp.asarray(outputs)[twice], {k: v[twice] for k, v in batch.items()}, Context())
    np.testing.assert_allclose(one[0], two[0], rtol=1e-5)
    assert float(one[1]) == float(two[1])


@pytest.mark.parametrize("make", [t for t in TASKS if not t.startswith(DISCRETE)], indirect=True)
def test_no_example_is_in_two_splits(make):
    task = make()
    seen = {}
    for split, count in {"train": 80, **task.num_batches}.items():
        for i in range(count):
            for row in task.batch(i, split, 0)["inputs"]:
                seen.setdefault(row.tobytes(), set()).add(split)
    assert all(len(splits) == 1 for splits in seen.values())
    assert {s for splits in seen.values() for s in splits} == {"train", "validation", "test"}
