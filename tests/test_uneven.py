"""Uneven data and micro-batches: equal to one device, by a reference written without jddl's sums."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jddl
from jddl import assembly, catalog
from jddl.evaluation import evaluate
from jddl.records import Context
from jddl.tasks._weights import pad

MODEL = {"model": "mlp(hidden=8)", "runtime": "vmap"}
STEPS = 6


def reference(batches):
    """Parameters after plain optax steps on whole, unpadded batches with weights."""
    task = catalog.make("tasks", "digits", {"batch_size": 10})
    model = catalog.make("models", "mlp(hidden=8)", {"inputs": task.inputs, "outputs": 10})
    params, _ = model.init(jax.random.key(0))
    tx = optax.sgd(0.1, momentum=0.9)
    opt = tx.init(params)

    def loss(params, rows):
        x = rows["inputs"].reshape(len(rows["inputs"]), -1)
        for part in (params["shared"]["embed"], params["blocks"][0]):
            x = jax.nn.relu(x @ part["linear"]["kernel"] + part["linear"]["bias"])
        head = params["shared"]["head"]["linear"]
        logits = x @ head["kernel"] + head["bias"]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), rows["labels"][:, None], 1)[:, 0]
        weight = rows.get("weight", np.ones(len(picked), np.float32))
        return -(picked * weight).sum() / weight.sum()

    for rows in batches:
        updates, opt = tx.update(jax.grad(loss)(params, rows), opt)
        params = optax.apply_updates(params, updates)
    return params


def close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.abs(x - y).max() <= 1e-5 * max(np.abs(y).max(), 0.1)


def batches(size):
    task = catalog.make("tasks", "digits", {"batch_size": size})
    return [task.batch(step, "train", 0) for step in range(STEPS)]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_ten_examples_on_any_number_of_workers(n, accumulate):
    """10 examples on 4 workers: 3, 3, 3 and 1; on 8 some have none."""
    config = MODEL | {"mesh": f"data={n}", "batch_size": 10, "steps": STEPS, "log_every": STEPS}
    config |= {"uneven_batch": "pad", "accumulate": accumulate}
    close(jddl.train(config).params, reference(batches(10)))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_accumulating_is_the_large_batch(k):
    config = MODEL | {"mesh": "data=4", "batch_size": 120, "steps": STEPS, "log_every": STEPS}
    close(jddl.train(config | {"accumulate": k}).params, reference(batches(120)))


MASKED = '''
"""Digits of which a random part counts."""
import numpy as np
from jddl.records import Task
from jddl.tasks.digits import digits

def masked(batch_size: int) -> Task:
    """Weights 0 or 1, of other counts on each worker and in each micro-batch."""
    task = digits(batch_size)

    def batch(step, split, seed):
        rows = task.batch(step, split, seed)
        size = len(rows["labels"])
        keep = np.random.default_rng([step, seed]).random(size) < np.linspace(0.9, 0.1, size)
        return rows | {"weight": keep.astype(np.float32)}

    return task._replace(batch=batch)
'''


def test_masks_of_different_size_per_worker_and_micro_batch(tmp_path):
    folder = tmp_path / "shelf" / "tasks"
    folder.mkdir(parents=True)
    (folder / "masked.py").write_text(MASKED)
    catalog.add_shelf(tmp_path / "shelf")
    try:
        task = catalog.make("tasks", "masked", {"batch_size": 46})
        rows = [task.batch(step, "train", 0) for step in range(STEPS)]
        counts = {pad(rows[0], 8)["weight"].reshape(8, 6)[i].sum() for i in range(8)}
        assert len(counts) > 3
        config = MODEL | {"task": "masked", "mesh": "data=4", "batch_size": 46, "steps": STEPS}
        config |= {"uneven_batch": "pad", "accumulate": 2, "log_every": STEPS}
        close(jddl.train(config).params, reference(rows))
        assert jddl.verify(config, steps=3).ok
    finally:
        catalog.remove_shelf(tmp_path / "shelf")


@pytest.mark.parametrize("runtime", ["vmap", "shard_map"])
def test_twenty_one_examples_are_evaluated_once_each(runtime):
    task = catalog.make("tasks", "digits", {"batch_size": 8})
    few = {k: v[:21] for k, v in task.batch(0, "test", 0).items()}
    found = []
    for n in (1, 2, 4, 8):
        config = {"model": "mlp(hidden=8)", "runtime": runtime, "mesh": f"data={n}"}
        experiment = jddl.validate(config | {"batch_size": 8})
        small = experiment.task._replace(batch=lambda step, split, seed: few)
        params, stats = experiment.model.init(jax.random.key(0))
        found.append(evaluate(experiment._replace(task=small), params, stats))
    logits = assembly.forward(experiment.model, params, {}, few["inputs"], Context())[0]
    right = (np.argmax(logits, -1) == few["labels"]).mean()
    for each in found:
        assert each["test_accuracy"] == right
        assert abs(each["test_loss"] - found[0]["test_loss"]) < 1e-6


def test_uneven_batches_are_an_error_by_default():
    with pytest.raises(ValueError, match=r"does not divide over the 4 workers.*uneven_batch='pad'"):
        jddl.validate(MODEL | {"mesh": "data=4", "batch_size": 10})
    with pytest.raises(ValueError, match=r"times accumulate=3; for example 96"):
        jddl.validate(MODEL | {"mesh": "data=8", "batch_size": 100, "accumulate": 3})
    with pytest.raises(ValueError, match="error, pad"):
        jddl.validate(MODEL | {"uneven_batch": "drop"})


def test_a_task_that_ignores_weights_is_an_error_where_rows_are_padded():
    """Else copies of the first example would count as data."""
    config = MODEL | {"mesh": "data=4", "batch_size": 8}
    experiment = jddl.validate(config)

    def deaf(outputs, batch, ctx):
        return experiment.task.loss(outputs, {"labels": batch["labels"]}, ctx)

    task = experiment.task._replace(loss=deaf)
    params, stats = experiment.model.init(jax.random.key(0))
    few = {k: v[:21] for k, v in task.batch(0, "test", 0).items()}
    whole = {k: v[:20] for k, v in few.items()}
    for rows in (whole, few):
        one = experiment._replace(task=task._replace(batch=lambda *a, rows=rows: rows))
        if rows is whole:
            assert evaluate(one, params, stats)["test_loss"] > 0
        else:
            with pytest.raises(ValueError, match=r"loss has the plain weight 6.0.*padding"):
                evaluate(one, params, stats)
