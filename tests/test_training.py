"""Data parallel training against one-device optax, written by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jddl
from jddl import assembly, catalog
from jddl.loop import traffic
from jddl.mesh import Own, P
from jddl.records import Context
from jddl.runs import read_run

STEPS = 50
BASE = {"model": "mlp(hidden=16)", "steps": STEPS, "log_every": 50}


@pytest.fixture(scope="module")
def reference():
    """One-device training that uses jddl's data and model but none of its machinery."""
    task = catalog.make("tasks", "digits", {"batch_size": 240})
    model = catalog.make("models", "mlp(hidden=16)", {"inputs": task.inputs, "outputs": 10})
    params, stats = model.init(jax.random.key(0))
    tx = optax.sgd(0.1, momentum=0.9)
    opt = tx.init(params)

    def loss(params, batch):
        logits, *_ = assembly.forward(model, params, stats, batch["inputs"], Context())
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"][:, None], 1)
        return -picked.mean()

    @jax.jit
    def step(params, opt, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt = tx.update(gradient, opt)
        return optax.apply_updates(params, updates), opt, value

    for number in range(STEPS):
        params, opt, value = step(params, opt, task.batch(number, "train", 0))
    return params, float(value)


CASES = [
    (n, algorithm, runtime)
    for n in (1, 2, 3, 5, 8)
    for algorithm in catalog.examples("collectives")
    for runtime in ("vmap", "pmap", "shard_map")
]


@pytest.mark.parametrize(("n", "algorithm", "runtime"), CASES)
def test_equals_one_device(n, algorithm, runtime, reference):
    """|a - b| <= 1e-5 max(|leaf|_inf, learning rate)."""
    config = BASE | {"mesh": f"data={n}", "all_reduce": algorithm, "runtime": runtime}
    result = jddl.train(config)
    params, loss = reference
    assert abs(result.history[0]["loss"] - loss) < 1e-5
    for a, b in zip(jax.tree.leaves(result.params), jax.tree.leaves(params), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert np.abs(a - b).max() <= 1e-5 * max(np.abs(b).max(), 0.1)


@pytest.mark.parametrize("runtime", ["pmap", "shard_map"])
@pytest.mark.parametrize("algorithm", catalog.examples("collectives"))
def test_replicas_stay_bit_identical(algorithm, runtime):
    """The step with every replicated output returned by each worker: all rows must be equal."""
    config = BASE | {"all_reduce": algorithm, "runtime": runtime}
    experiment = jddl.validate(config)
    strategy, mesh = experiment.strategy, experiment.mesh
    params, stats = experiment.model.init(jax.random.key(0))
    state = strategy.init(params, stats)
    own = Own(("data",))
    step = experiment.runtime.spmd(strategy.step, mesh, (P(), strategy.batch, P()), (own, own))
    rows, _ = jax.jit(step)(state, experiment.task.batch(0, "train", 0), jax.random.key(0))
    for leaf in jax.tree.leaves(jax.device_get(rows)):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


@pytest.mark.parametrize("aggregator", ["error_feedback(topk(ratio=0.05))", "compressed(int8)"])
def test_runtimes_agree_on_lossy_methods(aggregator):
    config = {**BASE, "steps": 20, "log_every": 20, "aggregator": aggregator}
    params = [jddl.train(config | {"runtime": r}).params for r in ("vmap", "shard_map", "pmap")]
    chex.assert_trees_all_close(params[0], params[1], atol=1e-5)
    chex.assert_trees_all_close(params[0], params[2], atol=1e-5)


def test_batches_are_pure_and_cover_each_epoch_once():
    task = catalog.make("tasks", "digits", {"batch_size": 419})  # 3 x 419 = 1257
    again = task.batch(1, "train", 0)["inputs"]
    epoch = np.concatenate([task.batch(s, "train", 0)["inputs"] for s in range(3)])
    np.testing.assert_array_equal(again, epoch[419:838])
    assert len(np.unique(epoch.reshape(1257, -1), axis=0)) == len(
        np.unique(
            np.concatenate([task.batch(s, "train", 1)["inputs"] for s in range(3)]).reshape(
                1257, -1
            ),
            axis=0,
        )
    )
    assert (task.batch(3, "train", 0)["inputs"] != task.batch(0, "train", 0)["inputs"]).any()


def test_uneven_weights_give_the_gradient_of_the_global_mean():
    """Masked examples, different counts a worker: equal to one device's masked mean."""
    task = catalog.make("tasks", "digits", {"batch_size": 40})
    model = catalog.make("models", "linear", {"inputs": task.inputs, "outputs": 10})
    mask = np.random.default_rng(0).random(40) < 0.4
    assert len({m.sum() for m in mask.reshape(8, 5)}) > 1

    def loss(outputs, batch, ctx):
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["labels"])
        return (losses * batch["mask"]).sum(), batch["mask"].sum()

    masked = task._replace(loss=loss, metrics=lambda *a: {})
    batch = task.batch(0, "train", 0) | {"mask": mask.astype(np.float32)}
    params = []
    for n in (1, 8):
        strategy = assembly.data_parallel(
            masked, model, {"data": n}, catalog.make("aggregators", "mean"), optax.sgd(1.0)
        )
        state = strategy.init(*model.init(jax.random.key(0)))
        spmd = catalog.make("runtimes", "vmap").spmd
        step = spmd(strategy.step, {"data": n}, (P(), P("data"), P()), (P(), Own(("data",))))
        params.append(jax.jit(step)(state, batch, jax.random.key(0))[0].params)
    chex.assert_trees_all_close(*params, atol=1e-6)


def test_same_config_writes_the_same_bytes(tmp_path):
    config = BASE | {"aggregator": "compressed(int8(stochastic=True))", "steps": 12, "log_every": 3}
    jddl.train(config, tmp_path / "a")
    jddl.train(tmp_path / "a" / "config.json", tmp_path / "b")
    a, b = ((tmp_path / x / "metrics.jsonl").read_bytes() for x in "ab")
    assert a == b and a.count(b"\n") == 5
    assert {"final_loss", "steps", "payload_bytes", "sent_bytes", "received_bytes", "rounds",
            "modelled_step_seconds", "wall_seconds", "runtime", "mesh", "seed", "jax_version",
            "test_accuracy"} <= set(read_run(tmp_path / "a").summary)  # fmt: skip


def test_traffic_of_the_quickstart_by_hand():
    """mlp(hidden=64) on digits: 64*64+64 + 64*64+64 + 64*10+10 = 8,970 parameters."""
    dense = 4 * 8970
    found = traffic(jddl.validate("configs/quickstart.py"))
    assert (found["payload_bytes"], found["sent_bytes"], found["rounds"]) == (
        dense,
        dense * 14 // 8,
        14,
    )
    config = dict(jddl.validate("configs/quickstart.py").config)
    sparse = traffic(jddl.validate(config | {"aggregator": "error_feedback(topk(ratio=0.01))"}))
    assert sparse["payload_bytes"] == 90 * (4 + 2) and sparse["sent_bytes"] == 7 * 90 * (4 + 2)
    coded = traffic(jddl.validate(config | {"aggregator": "compressed(int8)"}))
    assert coded["payload_bytes"] == 8970 + 36 * 4


def test_least_squares_finds_the_closed_form():
    result = jddl.train("configs/least_squares.py")
    assert 0.003 < result.summary["test_loss"] < 0.007  # half the noise's variance is 0.005
