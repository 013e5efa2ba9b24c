"""FLOPs against closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jddl.accounting import measure


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, np.float32)


def flops(step, *args):
    return measure(step, *args).flops


def test_dot_products():
    assert flops(jnp.dot, shape(10, 30), shape(30, 20)) == 2 * 10 * 30 * 20
    assert flops(lambda a, b: jnp.einsum("bik,bjk->bij", a, b), shape(4, 5, 7), shape(4, 6, 7)) == (
        2 * 4 * 5 * 6 * 7
    )
    assert flops(jnp.add, shape(3), shape(3)) == 0


def test_the_gradient_of_an_mlp():
    """Forward, weight gradient, and input gradient of all layers but the first."""
    batch, widths = 16, (64, 32, 24, 10)
    layers = list(itertools.pairwise(widths))

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x**2).sum()

    weights = [shape(*layer) for layer in layers]
    products = [2 * batch * i * o for i, o in layers]
    assert flops(jax.grad(loss), weights, shape(batch, 64)) == 3 * sum(products) - products[0]


def test_a_scan_multiplies_and_remat_computes_the_forward_part_twice():
    w = shape(8, 8)
    step = lambda w: lax.scan(lambda c, _: (c @ w, None), w, None, length=5)[0]  # noqa: E731
    assert flops(step, w) == 5 * 2 * 512

    def loss(w, x):
        return jnp.sum(jax.checkpoint(lambda a: jnp.tanh(a @ w) @ w)(x))

    # forward 2, recomputed 1 (the last is not needed), weight gradients 2, input gradients 1
    assert flops(jax.value_and_grad(loss), w, shape(8, 8)) == 6 * 2 * 512
    # without the value the forward pass is dead code
    assert flops(jax.grad(loss), w, shape(8, 8)) == 4 * 2 * 512


def conv(x, kernel, stride=1, groups=1):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 4), (2, 4)])
def test_convolutions(stride, groups):
    out = 16 // stride
    found = flops(
        lambda x, k: conv(x, k, stride, groups), shape(3, 16, 16, 8), shape(3, 3, 8 // groups, 12)
    )
    assert found == 2 * (3 * out * out * 12) * (3 * 3 * 8 // groups)


@pytest.mark.parametrize("groups", [1, 4])
def test_the_gradients_of_a_convolution_cost_what_it_costs(groups):
    x, kernel = shape(3, 16, 16, 8), shape(3, 3, 8 // groups, 12)
    forward = flops(lambda x, k: conv(x, k, 1, groups), x, kernel)
    both = flops(
        jax.grad(lambda x, k: (conv(x, k, 1, groups) ** 2).sum(), argnums=(0, 1)), x, kernel
    )
    assert both == 3 * forward


def test_zeros_that_a_stride_puts_into_a_gradient_are_no_work():
    """Kernel 2, stride 2: each input pixel meets one kernel entry, as in the forward pass."""
    x, kernel = shape(1, 16, 16, 8), shape(2, 2, 8, 12)
    forward = flops(lambda x, k: conv(x, k, 2), x, kernel)
    assert forward == 2 * (8 * 8 * 12) * (2 * 2 * 8)
    both = flops(jax.grad(lambda x, k: (conv(x, k, 2) ** 2).sum(), argnums=(0, 1)), x, kernel)
    assert both == 3 * forward
