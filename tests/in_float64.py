"""A config's own step in float64 under vmap, for references that are held to 1e-12."""

import jax
import jax.numpy as jnp
import numpy as np

import jddl
from jddl.mesh import Own, P
from jddl.trees import as_key, step_key


def cast(tree, dtype=np.float64):
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def train(experiment, steps, dtype=np.float64):
    """The whole state on the host after so many steps, and each step's local sums."""
    strategy, mesh, spmd = experiment.strategy, experiment.mesh, experiment.runtime.spmd
    start = cast(experiment.model.init(jax.random.key(0)), dtype)
    state = strategy.init(*start)  # no leaf of these configs is a worker's own
    layout = strategy.layout(state)
    out = (layout, Own(strategy.axes))
    step = jax.jit(spmd(strategy.step, mesh, (layout, strategy.batch, P()), out))
    seen = []
    for number in range(steps):
        batch = cast(experiment.task.batch(number, "train", 0), dtype)
        state, local = step(state, batch, as_key(step_key(0, number + 1)))
        seen.append(jax.device_get(local))
    return jax.device_get(state), seen


def close(found, wanted, bound=1e-12):
    """max |a - b| <= bound * max(|leaf|, 0.1) on every leaf, both in float64."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == np.float64 and np.asarray(b).dtype == np.float64
        assert np.abs(a - b).max() <= bound * max(np.abs(b).max(), 0.1)


def build(**config):
    return jddl.validate({"runtime": "vmap", "model": "mlp(hidden=8)"} | config)
