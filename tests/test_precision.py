"""Half precision: master copies, the loss scale, overflows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jddl
from jddl import assembly, catalog
from jddl.mesh import Own, P
from jddl.precision import LossScaling, first_scale, next_scale
from jddl.records import Context
from jddl.runtimes.vmap import vmap
from jddl.trees import as_key, step_key

LINEAR = {"task": "least_squares", "model": "linear", "runtime": "vmap", "mesh": "data=4",
          "optimizer": "sgd(learning_rate=0.1)", "batch_size": 240}  # fmt: skip


def one_step(experiment, batch, state=None):
    """(state, local sums) of every worker, all of the state returned by each: rows of [n, ...]."""
    strategy, mesh = experiment.strategy, experiment.mesh
    n, own = mesh["data"], Own(("data",))
    if state is None:
        state = strategy.init(*experiment.model.init(jax.random.key(0)))
        state = jax.tree.map(lambda x: jnp.stack([x] * n), state)
    step = vmap().spmd(strategy.step, mesh, (own, strategy.batch, P()), (own, own))
    return state, *jax.device_get(jax.jit(step)(state, batch, as_key(step_key(0, 1))))


def scaled_rows(experiment, factor):
    batch = experiment.task.batch(0, "train", 0)
    return batch | {"labels": batch["labels"] * np.float32(factor)}


def test_a_sum_would_overflow_where_the_mean_does_not():
    """Errors near 9: the gradient of the scaled sum of 60 examples passes 65,504, the mean's not."""
    scale = 1024.0
    experiment = jddl.validate(LINEAR | {"precision": "float16", "loss_scale": scale})
    batch = scaled_rows(experiment, 4.0)
    x, y = batch["inputs"].astype(np.float64), batch["labels"].astype(np.float64)
    gradient = -(x * y[:, None]).sum(0)  # of the sum of squares / 2, at w = 0
    by_worker = -(x * y[:, None]).reshape(4, 60, -1).sum(1)
    assert np.abs(by_worker * scale).max() > 65504  # in float16 on one worker: infinite
    assert np.abs(by_worker / 60 * scale).max() < 65504
    with np.errstate(over="ignore"):
        assert np.isinf((by_worker * scale).astype(np.float16)).any()
    _, state, _ = one_step(experiment, batch)
    kernel = state.params["shared"]["head"]["linear"]["kernel"]
    assert kernel.dtype == np.float32 and (state.scale.scale == scale).all()
    np.testing.assert_allclose(kernel[0, :, 0], -0.1 * gradient / 240, rtol=4e-3, atol=4e-3)


def test_an_overflow_on_one_worker_changes_nothing_on_any_but_the_scale():
    """Not the parameters, not the momentum, not what error feedback keeps."""
    config = LINEAR | {"precision": "float16", "aggregator": "error_feedback(topk(ratio=0.5))"}
    experiment = jddl.validate(config | {"optimizer": "sgd(learning_rate=0.1, momentum=0.9)"})
    good = experiment.task.batch(0, "train", 0)
    _, before, _ = one_step(experiment, good)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(before.opt) if x.size)
    bad = {k: v.copy() for k, v in good.items()}
    bad["labels"][70] = 1e7  # worker 1 holds rows 60 to 119
    _, after, _ = one_step(experiment, bad, before)
    for name in ("params", "opt"):
        for a, b in zip(*(jax.tree.leaves(getattr(s, name)) for s in (after, before))):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(after.scale.scale, before.scale.scale / 2)
    np.testing.assert_array_equal(after.scale.good, 0)
    _, again, _ = one_step(experiment, good, after)
    assert np.isfinite(jax.tree.leaves(again.params)[0]).all()
    assert (jax.tree.leaves(again.params)[0] != jax.tree.leaves(after.params)[0]).any()


def test_running_statistics_are_kept_through_an_overflow():
    config = {
        "model": "small_cnn(channels=2, layers=0, norm='batch')",
        "mesh": "data=2",
        "runtime": "vmap",
    }
    config |= {"batch_size": 8, "precision": "float16"}
    experiment = jddl.validate(config)
    batch = experiment.task.batch(0, "train", 0)
    bad = batch | {"inputs": batch["inputs"].copy()}
    bad["inputs"][5] = 60000.0  # the convolution overflows, and so does what it normalises
    start, after, _ = one_step(experiment, bad)
    for a, b in zip(*(jax.tree.leaves((s.params, s.stats)) for s in (start, after))):
        np.testing.assert_array_equal(a, b)
    assert (after.scale.scale == 2.0**14).all()
    start, after, _ = one_step(experiment, batch)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (start.stats, after.stats))))


def test_the_scale_doubles_after_a_period_and_halves_after_an_overflow():
    scaling = LossScaling(1024.0, 3)
    state, scales = first_scale(scaling), []
    for good in [1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0]:
        state = next_scale(scaling, state, jnp.bool_(good))
        scales.append(float(state.scale))
    assert scales == [1024, 1024, 2048, 2048, 2048, 1024, 1024, 1024, 2048, 1024, 512]
    for _ in range(60):
        state = next_scale(scaling, state, jnp.bool_(False))
    assert state.scale > 0  # never 0: the gradient is divided by it


def test_training_finds_a_scale_that_fits():
    """From 2^24, where every gradient overflows, down to one that does not; then it trains."""
    config = LINEAR | {"precision": "float16", "loss_scale": 2.0**24, "steps": 40, "log_every": 1}
    history = jddl.train(config).history[:-1]
    scales = [row["loss_scale"] for row in history]
    assert scales[0] == 2.0**24 and scales[1] == 2.0**23
    kept = [row["loss"] for row in history if row["loss_scale"] == scales[0]]
    assert len(set(kept)) == 1
    assert scales[-1] < 2.0**20 and history[-1]["loss"] < 0.05 * history[0]["loss"]


@pytest.mark.parametrize(("precision", "bound"), [("bfloat16", 3e-2), ("float16", 4e-3)])
def test_half_precision_trains_float32_master_copies(precision, bound):
    config = {"model": "mlp(hidden=8)", "runtime": "vmap", "mesh": "data=4", "steps": 10}
    config |= {"batch_size": 40, "log_every": 10}
    half, full = (jddl.train(config | {"precision": p}) for p in (precision, "float32"))
    for a, b in zip(jax.tree.leaves(half.params), jax.tree.leaves(full.params), strict=True):
        assert a.dtype == np.float32
        assert 0 < np.abs(a - b).max() < bound
    experiment = jddl.validate(config | {"precision": precision})
    text = str(jax.make_jaxpr(
        lambda p, x: assembly.forward(experiment.model, p, {}, x, Context())[0]
    )(full.params, np.ones((2, 64), np.float32)))  # fmt: skip
    products = [line for line in text.splitlines() if "dot_general" in line]
    short = {"bfloat16": "bf16[", "float16": "f16["}[precision]
    assert len(products) == 3 and all(f":{short}" in line for line in products)


@pytest.mark.parametrize("spec", ["mean", "compressed(identity)", "compressed(topk(ratio=1.0))"])
def test_float16_gradients_of_a_users_own_loop_may_add_up_to_more_than_float16_holds(spec):
    """8 workers with 32,768 each: the sum, 262,144, is infinite in float16."""
    tx = catalog.make("aggregators", spec)
    own = Own(("data",))
    run = vmap().spmd(lambda g: tx.update(g, tx.init(g))[0], {"data": 8}, (own,), own)
    found = jax.jit(run)(jnp.full((8, 5), 32768, jnp.float16))
    assert found.dtype == jnp.float16
    np.testing.assert_array_equal(found, jnp.full((8, 5), 32768, jnp.float16))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": "half"}, "float32, bfloat16, float16, not 'half'"),
        ({"loss_scale": 8.0}, "loss_scale=8.0 has no effect with precision='float32'"),
        ({"precision": "bfloat16", "loss_scale_period": 3}, "has no effect"),
        ({"precision": "float16", "loss_scale": 0.0}, "above 0"),
    ],
)
def test_a_wrong_precision_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        jddl.validate(change)


def test_the_default_step_holds_no_scale():
    experiment = jddl.validate({"runtime": "vmap"})
    state = jax.eval_shape(
        lambda: experiment.strategy.init(*experiment.model.init(jax.random.key(0)))
    )
    assert not jax.tree.leaves((state.scale, state.stats))


def test_statistics_and_scale_are_saved_and_resumed(tmp_path):
    """Three steps, then three from their checkpoint on other workers: the run of six steps."""
    config = {"model": "small_cnn(channels=2, layers=0, norm='batch')", "runtime": "vmap",
              "mesh": "data=2", "batch_size": 8, "precision": "float16", "loss_scale": 256.0,
              "loss_scale_period": 2, "steps": 6}  # fmt: skip
    whole = jddl.train(config)
    jddl.train(config | {"steps": 3, "save_every": 3}, tmp_path / "first")
    same = jddl.train(config, tmp_path / "same", resume_from=tmp_path / "first")
    other = config | {"mesh": "data=4"}
    moved = jddl.train(other, tmp_path / "moved", resume_from=tmp_path / "first")
    for a, b, c in zip(*(jax.tree.leaves(run.params) for run in (whole, same, moved))):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, atol=2e-3)
    assert whole.history[-2]["loss_scale"] == same.history[-2]["loss_scale"] == 1024
    assert whole.summary["test_loss"] == same.summary["test_loss"]


@pytest.mark.parametrize(
    ("task", "model", "leaf"),
    [
        (
            "text(glob='README.md', held_out=2, length=8)",
            "moe_transformer(layers=1, penalty=1.0, width=16)",
            lambda p: p["blocks"][0]["feed_forward"]["router"]["kernel"],
        ),
        (
            "digits",
            "small_cnn(channels=4, layers=0, norm='batch')",
            lambda p: p["shared"]["embed"]["convolution"]["kernel"],
        ),
    ],
)
def test_float16_of_a_model_that_sums_over_workers_with_unequal_weights(task, model, leaf):
    """5 examples over 4 workers: the last has padding alone, and still shares the others' sums."""
    config = {"task": task, "model": model, "mesh": "data=4", "runtime": "vmap", "batch_size": 5,
              "uneven_batch": "pad", "optimizer": "sgd(learning_rate=1.0)", "steps": 1}  # fmt: skip
    before, _ = jddl.validate(config).model.init(jax.random.key(0))
    steps = [
        np.asarray(leaf(jddl.train(config | {"precision": p}).params)) - np.asarray(leaf(before))
        for p in ("float32", "float16")
    ]
    assert np.linalg.norm(steps[0] - steps[1]) < 0.03 * np.linalg.norm(steps[0]) > 0
