"""What tests of models share: losses whose slopes are compared with NumPy's, in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from jddl import assembly
from jddl.records import Context
from tests.in_float64 import cast


def layer_norm(x, part, epsilon):
    """Mean 0 and variance 1 over the last dimension, then scale and bias."""
    x = x - x.mean(-1, keepdims=True)
    return part["scale"] * x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) + part["bias"]


def agree(model, reference, inputs, train=False):
    """Outputs of the model and of `reference(params, inputs)` in float64, and their slopes.

    Parameters are random, so that none has a special value such as 0 or 1. The slope of sum(outputs * weights) along three random directions: JAX's gradient against the
    reference's central difference. Both to 1e-7 of the larger number or better.
    """
    rng = np.random.default_rng(1)
    params, stats = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    params = jax.tree.map(lambda p: 0.5 * rng.standard_normal(p.shape), params)
    stats = jax.tree.map(lambda s: np.ones(s.shape), stats)
    wanted = reference(params, inputs)
    weights = rng.standard_normal(wanted.shape)

    def loss(params, stats, inputs):
        ctx = Context(train=train)
        found = assembly.forward(model, params, stats, inputs, ctx)[0]
        return jnp.sum(found * weights), found

    with jax.enable_x64(True):
        gradient, found = jax.jit(jax.grad(loss, has_aux=True))(
            cast(params), *cast((stats, inputs))
        )
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())
    for _ in range(3):
        way = jax.tree.map(lambda p: rng.standard_normal(p.shape), params)
        ends = [
            np.sum(weights * reference(jax.tree.map(lambda p, d: p + e * d, params, way), inputs))  # noqa: B023
            for e in (1e-6, -1e-6)
        ]
        dots = jax.tree.map(lambda g, d: np.sum(np.asarray(g) * d), gradient, way)
        np.testing.assert_allclose(sum(jax.tree.leaves(dots)), (ends[0] - ends[1]) / 2e-6, 1e-7)
