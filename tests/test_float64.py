"""A step's features together in float64: four workers equal plain optax on one device to 1e-12."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jddl.clipping import clip_by_global_norm
from jddl.mesh import P
from jddl.models._dropout import dropout
from jddl.records import Context
from jddl.runtimes.shard_map import shard_map
from jddl.trees import as_key, fold_name, step_key
from tests.in_float64 import build, cast, close, train

STEPS = 5
ADAM = "adamw(learning_rate=0.01)"
MOMENTUM = "sgd(learning_rate=0.1, momentum=0.9)"


def one_device(experiment, tx, drop=0.0):
    """Whole batches, the network written out, each mask drawn from the key of its example."""
    params, _ = cast(experiment.model.init(jax.random.key(0)))
    opt = tx.init(params)

    def layer(x, part, key, relu):
        x = x @ part["linear"]["kernel"] + part["linear"]["bias"]
        if not relu:
            return x
        x = jnp.where(x > 0, x, 0)  # slope 0 at 0, which is met where all inputs are dropped
        rows = [jax.random.fold_in(key, i) for i in range(len(x))] if drop else []
        kept = [jax.random.bernoulli(k, 1 - drop, x.shape[1:]) for k in rows]
        return x * jnp.stack(kept) / (1 - drop) if drop else x

    def loss(params, rows, key):
        shared, x = params["shared"], rows["inputs"].reshape(len(rows["inputs"]), -1)
        x = layer(x, shared["embed"], fold_name(key, "embed"), True)
        x = layer(x, params["blocks"][0], fold_name(key, "block 0"), True)
        logits = layer(x, shared["head"], None, False)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), rows["labels"][:, None], 1)[:, 0]
        weight = rows.get("weight", jnp.ones(len(picked)))
        return -(weight * picked).sum() / weight.sum()

    for number in range(STEPS):
        rows = cast(experiment.task.batch(number, "train", 0))
        gradient = jax.grad(loss)(params, rows, as_key(step_key(0, number + 1)))
        updates, opt = tx.update(gradient, opt, params)
        params = optax.apply_updates(params, updates)
    return jax.device_get(params)


@pytest.mark.parametrize(
    ("config", "tx", "drop"),
    [
        ({"batch_size": 24, "optimizer": MOMENTUM}, optax.sgd(0.1, momentum=0.9), 0.0),
        ({"batch_size": 10, "optimizer": ADAM, "accumulate": 2}, optax.adamw(0.01), 0.0),
        (
            {"batch_size": 22, "optimizer": ADAM, "accumulate": 3, "clip_norm": 0.2},
            optax.chain(optax.clip_by_global_norm(0.2), optax.adamw(0.01)),
            0.5,
        ),
        (
            {"batch_size": 10, "optimizer": MOMENTUM, "all_reduce": "ring", "clip_norm": 0.2},
            optax.chain(optax.clip_by_global_norm(0.2), optax.sgd(0.1, momentum=0.9)),
            0.5,
        ),
    ],
)
def test_four_workers_are_one_device(config, tx, drop):
    model = f"mlp(hidden=8, drop={drop})"
    with jax.enable_x64(True):
        experiment = build(model=model, mesh="data=4", uneven_batch="pad", **config)
        state, sums = train(experiment, STEPS)
        close(state.params, one_device(experiment, tx, drop))
        assert all(x.dtype == np.float64 for x in jax.tree.leaves((state.opt, sums)) if x.ndim > 1)
        assert all(s["loss"][1].sum() == config["batch_size"] for s in sums)


def test_a_mask_is_its_examples_whatever_the_rows_beside_it():
    x = jnp.ones((6, 400))

    def draw(examples, key):
        ctx = Context(key=key, train=True, examples=jnp.array(examples))
        return dropout(x[: len(examples)], 0.25, ctx)

    key = jax.random.key(0)
    whole = np.asarray(draw([0, 1, 2, 3, 4, 5], key))
    np.testing.assert_array_equal(draw([4, 1], key), whole[[4, 1]])
    assert len({row.tobytes() for row in whole}) == 6  # an example has its own
    assert (draw([0], jax.random.key(1)) != whole[:1]).any()  # and another at another step
    assert set(np.unique(whole)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((whole == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / whole.size)
    np.testing.assert_array_equal(dropout(x, 0.25, Context(train=False)), x)


def test_clipping_in_a_sharded_loop_of_ones_own():
    """Leaves cut over one axis, over two and over none: momentum SGD as optax's on whole arrays."""
    mesh = {"data": 2, "tensor": 2}
    specs = {"one": P("tensor"), "two": P("tensor", "data"), "both": P(None, ("data", "tensor")),
             "none": P()}  # fmt: skip
    shapes = {"one": (4, 3), "two": (2, 4), "both": (3, 8), "none": (5,)}
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        params = {k: jnp.asarray(rng.standard_normal(s)) for k, s in shapes.items()}
        target = {k: jnp.asarray(rng.standard_normal(s)) for k, s in shapes.items()}

        def loop(params, target, clip):
            tx = optax.chain(clip, optax.sgd(0.1, momentum=0.9))
            opt = tx.init(params)
            for _ in range(6):
                gradient = jax.tree.map(lambda p, t: p - t, params, target)
                updates, opt = tx.update(gradient, opt)
                params = optax.apply_updates(params, updates)
            return params

        for norm in (1.0, 5.0, 1e3):
            mine = lambda p, t, norm=norm: loop(p, t, clip_by_global_norm(norm, specs))  # noqa: E731
            found = jax.jit(shard_map().spmd(mine, mesh, (specs, specs), specs))(params, target)
            close(jax.device_get(found), loop(params, target, optax.clip_by_global_norm(norm)))


def test_a_norm_that_is_not_finite_spoils_the_whole_gradient():
    """An infinite norm must not give zeros, which would look like a step."""
    clip = clip_by_global_norm(1.0).update
    for bad in (np.inf, np.nan, 1e30):  # 1e60 is no float32
        found = clip({"a": jnp.array([bad, 1.0]), "b": jnp.ones(2)}, ())[0]
        assert all(np.isnan(x).all() for x in found.values())
    half, _ = clip({"a": jnp.array([300.0, 400.0], jnp.float16)}, ())  # 300^2 is no float16
    np.testing.assert_allclose(np.asarray(half["a"], np.float32), [0.6, 0.8], rtol=1e-3)
