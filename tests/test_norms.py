"""Batch and group normalisation against a network and its statistics written out by hand."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jddl
from jddl import catalog
from jddl.evaluation import evaluate
from jddl.mesh import Own, P
from jddl.trees import as_key, leaf_names, step_key
from tests.in_float64 import build, cast, close, train

STEPS = 3
BATCH = "small_cnn(channels=4, norm='batch')"
GROUP = "small_cnn(channels=4, norm='group', groups=2)"
SGD = {"optimizer": "sgd(learning_rate=0.1, momentum=0.9)"}


def convolve(x, kernel):
    """3 x 3, zeros around: a sum of nine shifted matrix products."""
    wide = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(
        jnp.einsum("bhwi,io->bhwo", wide[:, i : i + 8, j : j + 8], kernel[i, j])
        for i in range(3)
        for j in range(3)
    )


def batch_norm(x, part, weight, running):
    """Mean and variance of the rows that count, by NumPy's definition."""
    w = weight[:, None, None, None] * jnp.ones_like(x)
    mean = (w * x).sum((0, 1, 2)) / w.sum((0, 1, 2))
    var = (w * x**2).sum((0, 1, 2)) / w.sum((0, 1, 2)) - mean**2
    y = part["scale"] * (x - mean) / jnp.sqrt(var + 1e-5) + part["bias"]
    return y, {k: 0.9 * running[k] + 0.1 * now for k, now in (("mean", mean), ("var", var))}


def group_norm(x, part, groups=2):
    parts = x.reshape(*x.shape[:3], groups, -1)
    mean = parts.mean((1, 2, 4), keepdims=True)
    var = ((parts - mean) ** 2).mean((1, 2, 4), keepdims=True)
    y = ((parts - mean) / jnp.sqrt(var + 1e-5)).reshape(x.shape)
    return part["norm"]["scale"] * y + part["norm"]["bias"]


def loss_sum(params, stats, rows):
    """(weighted sum of cross-entropies, (sum of weights, new stats)) on one device."""
    weight = rows.get("weight", jnp.ones(len(rows["labels"])))
    x, after = rows["inputs"], []
    parts = [params["shared"]["embed"], *params["blocks"]]
    held = [stats["shared"]["embed"], *stats["blocks"]] if stats else [{}] * len(parts)
    for part, running in zip(parts, held, strict=True):
        x = convolve(x, part["convolution"]["kernel"])
        if stats:
            x, now = batch_norm(x, part["norm"], weight, running["norm"])
            after.append({"norm": now})
        else:
            x = group_norm(x + part["convolution"]["bias"], part["norm"])
        x = jnp.maximum(x, 0)
    x = x.reshape(len(x), 4, 2, 4, 2, 4).mean((2, 4)).reshape(len(x), -1)
    head = params["shared"]["head"]["linear"]
    logits = x @ head["kernel"] + head["bias"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), rows["labels"][:, None], 1)[:, 0]
    stats = stats and {"shared": {"embed": after[0], "head": {}}, "blocks": tuple(after[1:])}
    return -(weight * picked).sum(), (weight.sum(), stats)


@cache
def by_hand(spec, size, groups=None):
    """optax.sgd on whole batches; `groups`: rows that are normalised together, in order."""
    params, stats = cast(model_of(spec).init(jax.random.key(0)))
    tx = optax.sgd(0.1, momentum=0.9)
    opt = tx.init(params)
    differentiate = jax.jit(jax.grad(loss_sum, has_aux=True))
    for rows in map(cast, batches(size)):
        total, weights = jax.tree.map(jnp.zeros_like, params), 0.0
        for index in groups or [range(size)]:
            some = jax.tree.map(lambda x: x[np.array(index)], rows)  # noqa: B023 - used at once
            gradient, (weight, stats) = differentiate(params, stats, some)
            total, weights = jax.tree.map(jnp.add, total, gradient), weights + weight
        updates, opt = tx.update(jax.tree.map(lambda g: g / weights, total), opt)  # noqa: B023
        params = optax.apply_updates(params, updates)
    return jax.device_get((params, stats))


def batches(size, steps=STEPS):
    task = catalog.make("tasks", "digits", {"batch_size": size})
    return [task.batch(step, "train", 0) for step in range(steps)]


def model_of(spec):
    return catalog.make("models", spec, {"inputs": (8, 8, 1), "outputs": 10})


@pytest.mark.parametrize(
    ("n", "all_reduce", "size"),
    [(1, "native", 10), (4, "native", 10), (4, "native", 24), (3, "ring", 10)],
)
def test_batch_norm_over_workers_is_batch_norm_of_the_whole_batch(n, all_reduce, size):
    """Gradients through the statistics too: parameters and running statistics to 1e-12."""
    config = {"model": BATCH, "mesh": f"data={n}", "batch_size": size, "all_reduce": all_reduce}
    with jax.enable_x64(True):
        state, _ = train(build(**config, **SGD, uneven_batch="pad"), STEPS)
        params, stats = by_hand(BATCH, size)
        close(state.params, params)
        close(state.stats, stats)


def test_normalising_each_worker_by_itself_would_be_seen():
    """The control: without the term between replicas the parameters are far off."""
    alone = tuple(tuple(range(6 * i, 6 * i + 6)) for i in range(4))
    with jax.enable_x64(True):
        together, _ = by_hand(BATCH, 24)
        apart, _ = by_hand(BATCH, 24, alone)
    gaps = [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (together, apart)))]
    assert min(gaps) > 1e-4


def test_under_accumulation_each_micro_batch_of_all_workers_is_normalised():
    """4 workers x 3 micro-batches of 2: the first one is rows 0, 1, 6, 7, 12, 13, 18 and 19."""
    groups = tuple(tuple(6 * w + 2 * k + i for w in range(4) for i in (0, 1)) for k in range(3))
    config = {"model": BATCH, "mesh": "data=4", "batch_size": 24, "accumulate": 3}
    with jax.enable_x64(True):
        state, _ = train(build(**config, **SGD), STEPS)
        params, stats = by_hand(BATCH, 24, groups)
        close(state.params, params)
        close(state.stats, stats)


@pytest.mark.parametrize(("n", "accumulate"), [(1, 1), (4, 3)])
def test_group_norm_knows_no_workers_and_no_micro_batches(n, accumulate):
    config = {"model": GROUP, "mesh": f"data={n}", "batch_size": 22, "accumulate": accumulate}
    with jax.enable_x64(True):
        state, _ = train(build(**config, **SGD, uneven_batch="pad"), STEPS)
        close(state.params, by_hand(GROUP, 22)[0])
        assert not jax.tree.leaves(state.stats)


@pytest.mark.parametrize("all_reduce", ["native", "ring"])
def test_running_statistics_are_the_same_bits_on_every_device(all_reduce):
    """Every worker's own state goes round for three steps: drift would show and grow."""
    experiment = jddl.validate(
        {
            "model": "small_cnn(channels=4, layers=0, norm='batch')",
            "mesh": "data=4",
            "batch_size": 20,
            "all_reduce": all_reduce,
        }
    )
    strategy, own = experiment.strategy, Own(("data",))
    step = experiment.runtime.spmd(
        strategy.step, experiment.mesh, (own, strategy.batch, P()), (own, own)
    )
    state = strategy.init(*experiment.model.init(jax.random.key(0)))
    state = jax.tree.map(lambda x: jnp.stack([x] * 4), state)
    run = jax.jit(step)
    for number in range(3):
        batch = experiment.task.batch(number, "train", 0)
        state, _ = run(state, batch, as_key(step_key(0, number + 1)))
    names = [name for name in leaf_names(state) if ".stats" in name]
    assert len(names) == 2
    for leaf in jax.tree.leaves(jax.device_get(state)):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


def test_evaluation_takes_the_running_statistics():
    """A test batch of one class alone is not normalised by itself."""
    experiment = build(model=BATCH, mesh="data=4", batch_size=24)
    with jax.enable_x64(True):
        params, stats = by_hand(BATCH, 24)
        some = batches(500, 1)[0]
        rows = {k: v[some["labels"] == 3] for k, v in some.items()}
        ours = experiment._replace(task=experiment.task._replace(batch=lambda *_: cast(rows)))
        found = evaluate(ours, params, stats)
        x = cast(rows)["inputs"]
        for part, running in zip([params["shared"]["embed"], *params["blocks"]],
                                 [stats["shared"]["embed"], *stats["blocks"]], strict=True):  # fmt: skip
            x = convolve(x, part["convolution"]["kernel"])
            r, p = running["norm"], part["norm"]
            x = jnp.maximum(p["scale"] * (x - r["mean"]) / jnp.sqrt(r["var"] + 1e-5) + p["bias"], 0)
        x = x.reshape(len(x), 4, 2, 4, 2, 4).mean((2, 4)).reshape(len(x), -1)
        head = params["shared"]["head"]["linear"]
        logits = jax.nn.log_softmax(x @ head["kernel"] + head["bias"])
        assert abs(found["test_loss"] + float(logits[:, 3].mean())) < 1e-12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("norm='layer'", "none, batch, group"),
        ("norm='group'", "divides channels=16"),
        ("groups=3, norm='group'", "divides channels=16, which 3 does not"),
        ("groups=2", "has no effect with norm='none'"),
    ],
)
def test_a_wrong_norm_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        model_of(f"small_cnn({arguments})")


def test_no_one_device_certificate_where_there_is_no_one_device_reference():
    config = {"model": BATCH, "runtime": "vmap", "mesh": "data=4"}
    with pytest.raises(ValueError, match="accumulate > 1: each micro-batch"):
        jddl.verify(config | {"accumulate": 2}, steps=1)
