"""bfloat16 and float8 travel in 2 and 1 byte: seen in the compiled program, where XLA:CPU widens."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jddl
from jddl.accounting import measure, measure_hlo, widened_on_cpu
from jddl.accounting._widening import WIDER
from jddl.aggregators import compressed
from jddl.records import Compressor

N = 8
NARROW = [("bfloat16", "u16", 2), ("float8_e4m3fn", "u8", 1), ("float8_e5m2", "u8", 1)]
FLOATS = [n for n in WIDER if "int" not in n]


def mapped(step):
    """`step` on eight devices; each sees one row of the whole array."""
    mesh = jax.make_mesh((N,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:N])
    return jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    )


def operand_types(compiled):
    """{opcode: element types of what travels}, from the text alone."""
    found = re.findall(r"= (\w+)\[\S* (all-\w+|collective-\w+|reduce-scatter)", compiled.as_text())
    return {opcode: {t for t, o in found if o == opcode} for _, opcode in found}


@pytest.mark.parametrize(("dtype", "bits", "width"), NARROW)
@pytest.mark.parametrize(
    # d = 100 over 8 ranks: chunks of 13, a ring moves 14 of them, direct too; 3 whole vectors
    ("algorithm", "elements"), [("ring", 14 * 13), ("direct", 14 * 13), ("recursive_doubling", 300)]
)  # fmt: skip
def test_a_custom_all_reduce_moves_bits_and_adds_numbers(dtype, bits, width, algorithm, elements):
    run = mapped(lambda x: jddl.all_reduce(x[0], "data", algorithm)[None])
    # Sums of eight numbers of {-1, 0, 1}: exact in each of the types, in any order.
    x = np.random.default_rng(0).integers(-1, 2, (N, 100))
    x[:, 0] = [1, 0, 1, 0, -1, 0, 1, 1]
    whole = jnp.asarray(x, dtype)
    compiled = run.lower(whole).compile()
    assert operand_types(compiled) == {"collective-permute": {bits}}
    traced = measure(run, whole)
    assert traced.sent_bytes == measure_hlo(compiled).sent_bytes == elements * width
    assert traced.payload_bytes == 100 * width
    found = compiled(whole)
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.tile(x.sum(0), (N, 1)))


@pytest.mark.parametrize(("dtype", "bits", "width"), NARROW)
def test_gathered_payloads_move_bits(dtype, bits, width):
    """A cast as compressor: n-1 other workers' 100 elements arrive, the mean is of the casts."""
    cast = Compressor(
        init=lambda leaf: (),
        compress=lambda leaf, state, key: (leaf.astype(dtype), state),
        decompress=lambda payload, like, key=None: payload.astype(like.dtype),
        combine="gather",
    )
    tx = compressed(cast)

    def step(x):
        return tx.update(x[0], tx.init(x[0]))[0][None]

    x = jnp.asarray(np.random.default_rng(0).normal(size=(N, 100)), jnp.float32)
    run = mapped(step)
    compiled = run.lower(x).compile()
    assert operand_types(compiled) == {"all-gather": {bits}}
    traced = measure(run, x)
    assert traced.sent_bytes == measure_hlo(compiled).sent_bytes == 7 * 100 * width
    assert traced.payload_bytes == 100 * width
    wanted = np.asarray(x).astype(jnp.dtype(dtype)).astype(np.float64).mean(0)
    np.testing.assert_allclose(compiled(x), np.tile(wanted, (N, 1)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32"])
def test_what_xla_leaves_alone_travels_as_it_is(dtype):
    run = mapped(lambda x: jddl.all_reduce(x[0], "data", "ring")[None])
    traced = measure(run, jax.ShapeDtypeStruct((N, 100), dtype))
    assert {o.dtype for o in traced.operations} == {dtype}


def test_every_value_survives_the_way():
    """All 256 patterns of a float8, NaNs included, one rank to the right."""
    patterns = jnp.arange(256, dtype=jnp.uint8)
    whole = lax.bitcast_convert_type(jnp.tile(patterns, (N, 1)), jnp.float8_e4m3fn)
    from jddl.collectives._permute import permute

    run = mapped(lambda x: permute(x, "data", [(i, (i + 1) % N) for i in range(N)]))
    moved = lax.bitcast_convert_type(run(whole), jnp.uint8)
    np.testing.assert_array_equal(moved, np.tile(np.arange(256), (N, 1)))


NATIVE = {  # elements that a rank sends of 96: 2 (n-1)/n d, (n-1) d, (n-1)/n d
    "psum": (lambda x: lax.psum(x, "data"), 168),
    "pmax": (lambda x: lax.pmax(x, "data"), 168),
    "all_gather": (lambda x: lax.all_gather(x[0], "data"), 672),
    "reduce_scatter": (lambda x: lax.psum_scatter(x[0], "data", tiled=True)[None], 84),
    "all_to_all": (lambda x: lax.all_to_all(x[0], "data", 0, 0, tiled=True)[None], 84),
    "ppermute": (lambda x: lax.ppermute(x, "data", [(i, (i + 1) % 8) for i in range(8)]), 96),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float16"])
@pytest.mark.parametrize("name", NATIVE)
def test_a_native_collective_is_widened_and_measured_as_such(name, dtype):
    """The jaxpr says what an accelerator moves; XLA:CPU moves twice that, and we know it."""
    step, elements = NATIVE[name]
    x = jax.ShapeDtypeStruct((N, 96), dtype)
    run = mapped(step)
    traced, compiled = measure(run, x), measure_hlo(run.lower(x).compile())
    half_bytes = {"bfloat16": 4, "float16": 4, "int4": 1}.get(dtype, 2)
    assert traced.sent_bytes == elements * half_bytes / 2
    assert compiled.sent_bytes == widened_on_cpu(traced).sent_bytes
    assert compiled.sent_bytes == traced.sent_bytes * (1 if dtype == "float16" else 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_table_of_widths_is_what_this_xla_does(dtype):
    x = jax.ShapeDtypeStruct((N, 96), dtype)
    run = mapped(lambda x: lax.all_gather(x[0], "data"))
    compiled = measure_hlo(run.lower(x).compile())
    assert compiled.sent_bytes == 7 * 96 * WIDER[dtype] * jnp.dtype(dtype).itemsize
    assert widened_on_cpu(measure(run, x)).sent_bytes == compiled.sent_bytes
