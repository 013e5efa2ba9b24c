"""Laws of every aggregator. On a failure run the same update with n explicit workers in NumPy."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jddl import catalog
from jddl.mesh import Own, P, layout_of
from jddl.runtimes.vmap import vmap

EXAMPLES = catalog.examples("aggregators")
N = 4
PARAMS = {"w": jnp.zeros((6, 5)), "b": jnp.zeros(5)}


def gradients(steps, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {k: rng.standard_normal((N, *v.shape)).astype(np.float32) for k, v in PARAMS.items()}
        for _ in range(steps)
    ]


def run(tx, many):
    """Updates of each step as every worker sees them, and the last whole-array state."""
    shapes = jax.eval_shape(tx.init, PARAMS)
    layout = layout_of(shapes, ("data",))
    own = Own(("data",))
    mesh = {"data": N}
    state = jax.jit(vmap().spmd(tx.init, mesh, (P(),), layout))(PARAMS)
    step = jax.jit(
        vmap().spmd(lambda g, s: tx.update(g, s, PARAMS), mesh, (own, layout), (own, layout))
    )
    seen = []
    for g in many:
        update, state = step(g, state)
        seen.append(jax.device_get(update))
    return seen, state


@pytest.mark.parametrize("spec", EXAMPLES)
def test_workers_agree_bit_for_bit(spec):
    for update in run(catalog.make("aggregators", spec), gradients(3))[0]:
        for leaf in jax.tree.leaves(update):
            np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


@pytest.mark.parametrize("spec", ["mean", "compressed(identity)", "error_feedback(identity)"])
@pytest.mark.parametrize("all_reduce", ["native", "ring"])
def test_exact_ones_are_the_mean(spec, all_reduce):
    many = gradients(2)
    tx = catalog.make("aggregators", spec, {"all_reduce": all_reduce})
    for update, g in zip(run(tx, many)[0], many, strict=True):
        for name in PARAMS:
            np.testing.assert_allclose(update[name][0], g[name].mean(0), atol=1e-6)


@pytest.mark.parametrize("compressor", catalog.examples("compressors"))
def test_what_was_sent_plus_what_is_left_is_what_came_in(compressor):
    many = gradients(7)
    seen, state = run(catalog.make("aggregators", f"error_feedback({compressor})"), many)
    applied = {k: sum(u[k][0].astype(np.float64) for u in seen) for k in PARAMS}
    left = np.asarray(state.memory.value[0], np.float64).mean(0)  # flat: leaves in tree order
    came = {k: sum(g[k].astype(np.float64).mean(0) for g in many) for k in PARAMS}
    flat = np.concatenate([(came[k] - applied[k]).reshape(-1) for k in sorted(PARAMS)])
    np.testing.assert_allclose(flat, left, atol=2e-5)


def test_error_feedback_equals_explicit_workers():
    """Top-k with memory written out worker by worker in NumPy."""
    many, k = gradients(6), 4
    memory = np.zeros((N, 35))
    seen = run(catalog.make("aggregators", "error_feedback(topk(ratio=0.1))"), many)[0]
    for update, g in zip(seen, many, strict=True):
        flat = np.concatenate([g["b"].reshape(N, -1), g["w"].reshape(N, -1)], 1)
        memory = memory + flat
        sent = np.zeros_like(memory)
        for worker in range(N):
            top = np.argsort(-np.abs(memory[worker]))[:k]
            sent[worker, top] = memory[worker, top]
        memory -= sent
        mean = sent.mean(0)
        np.testing.assert_allclose(update["b"][0], mean[:5], atol=1e-5)
        np.testing.assert_allclose(update["w"][0].reshape(-1), mean[5:], atol=1e-5)


def test_stochastic_noise_differs_between_workers_and_steps():
    same = [{k: np.broadcast_to(v[0][:1], v[0].shape) for k, v in {"w": (g["w"],), "b": (g["b"],)}.items()}
            for g in gradients(1) * 2]  # fmt: skip
    tx = catalog.make("aggregators", "compressed(int8(stochastic=True))")
    first, second = run(tx, same)[0]
    assert (first["w"] != second["w"]).any()  # another step, other noise
    one_worker = catalog.make("compressors", "int8(stochastic=True)")
    codes = one_worker.compress(jnp.asarray(same[0]["w"][0]), (), jax.random.key(0))[0]
    step = float(codes["scales"].max())
    off_grid = np.abs(first["w"][0] / step - np.round(first["w"][0] / step))
    assert off_grid.max() > 0.1  # equal noise would leave the mean on one worker's grid


@pytest.mark.parametrize("spec", EXAMPLES)
def test_survives_optax_chain_and_a_saved_state(spec):
    tx = optax.chain(catalog.make("aggregators", spec), optax.sgd(0.1, momentum=0.9))
    _, state = run(tx, gradients(2))
    leaves, structure = jax.tree.flatten(state)
    restored = jax.tree.unflatten(structure, [np.array(x) for x in leaves])
    chex.assert_trees_all_equal_shapes_and_dtypes(restored, jax.device_get(state))


@pytest.mark.parametrize("aggregator", ["compressed", "error_feedback"])
def test_a_collective_that_nothing_uses_is_an_error(aggregator):
    with pytest.raises(ValueError, match="has no effect"):
        catalog.make("aggregators", f"{aggregator}(topk(ratio=0.1))", {"all_reduce": "ring"})
