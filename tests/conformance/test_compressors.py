"""Laws of every compressor. On a failure look at `payload` and the decoded leaf side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jddl import catalog

EXAMPLES = catalog.examples("compressors")
LEAVES = {
    "normal": np.random.default_rng(0).standard_normal((37, 9)).astype(np.float32),
    "zeros": np.zeros(300, np.float32),
    "one": np.array([-3.5], np.float32),
    "scalar": np.float32(2.25),
    "empty": np.zeros((0, 3), np.float32),
    "bf16": np.asarray(jnp.asarray(np.random.default_rng(1).standard_normal(64), jnp.bfloat16)),
}


def round_trip(spec, leaf, seed=0):
    compressor = catalog.make("compressors", spec)
    key = jax.random.key(seed) if compressor.key else None
    payload, _ = compressor.compress(jnp.asarray(leaf), compressor.init(leaf), key)
    return payload, compressor.decompress(payload, jnp.asarray(leaf), key)


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.parametrize("spec", EXAMPLES)
def test_shape_dtype_finiteness_and_contraction(spec, name):
    leaf = jnp.asarray(LEAVES[name])
    _, decoded = round_trip(spec, leaf)
    assert decoded.shape == leaf.shape and decoded.dtype == leaf.dtype
    x, y = np.asarray(leaf, np.float64), np.asarray(decoded, np.float64)
    assert np.isfinite(y).all()
    assert np.sum((x - y) ** 2) <= np.sum(x**2) + 1e-12  # |C(x) - x|^2 <= |x|^2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("spec", EXAMPLES)
def test_an_overflow_stays_visible(spec, bad):
    leaf = np.ones(400, np.float32)
    leaf[7] = bad
    assert not np.isfinite(np.asarray(round_trip(spec, leaf)[1])).all()


def nbytes(spec, leaf):
    compressor = catalog.make("compressors", spec)
    shapes = jax.eval_shape(lambda x: compressor.compress(x, (), jax.random.key(0))[0], leaf)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))


def test_payload_sizes_are_the_closed_forms():
    leaf = jax.ShapeDtypeStruct((100, 100), np.float32)
    assert nbytes("identity", leaf) == 40_000
    assert nbytes("topk(ratio=0.01)", leaf) == 100 * (4 + 2)  # f32 values, u16 indices
    assert nbytes("topk(ratio=0.01)", jax.ShapeDtypeStruct((100_000,), np.float32)) == 1000 * (
        4 + 4
    )
    assert nbytes("topk(ratio=0.01)", jax.ShapeDtypeStruct((200,), np.float32)) == 2 * (4 + 1)
    assert nbytes("int8(block=256)", leaf) == 10_000 + 40 * 4


def test_topk_keeps_the_largest_and_contracts_by_one_minus_k_over_d():
    rng = np.random.default_rng(2)
    for _ in range(20):
        x = rng.standard_normal(200).astype(np.float32)
        y = np.asarray(round_trip("topk(ratio=0.1)", x)[1])
        kept = np.flatnonzero(y)
        assert set(kept) == set(np.argsort(-np.abs(x))[:20])
        np.testing.assert_array_equal(y[kept], x[kept])
        assert np.sum((x - y) ** 2) <= (1 - 0.1) * np.sum(x**2)


def test_int8_error_is_within_half_a_step_of_its_own_block():
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((4, 64)) * np.array([[1e-3], [1], [50], [1e4]])).astype(np.float32)
    y = np.asarray(round_trip("int8(block=64)", x)[1])
    bound = np.abs(x).max(1, keepdims=True) / 127 / 2
    assert (np.abs(x - y) <= bound * 1.001).all()


def test_stochastic_int8_is_unbiased():
    """z-scores of the mean over 2,000 keys; deterministic rounding fails this by far."""
    x = np.random.default_rng(4).standard_normal(64).astype(np.float32)
    c = catalog.make("compressors", "int8(block=64, stochastic=True)")

    def decode(key):
        return c.decompress(c.compress(jnp.asarray(x), (), key)[0], jnp.asarray(x))

    decoded = np.asarray(jax.vmap(decode)(jax.random.split(jax.random.key(0), 2000)), np.float64)
    z = (decoded.mean(0) - x) / np.maximum(decoded.std(0) / np.sqrt(2000), 1e-9)
    assert np.abs(z).max() < 4.5
    rounded = np.asarray(round_trip("int8(block=64)", x)[1])
    step = np.abs(x).max() / 127
    assert np.abs(rounded - x).max() > 10 * step / np.sqrt(12 * 2000)
