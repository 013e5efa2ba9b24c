"""bfloat16 and float8 travel in their own width, seen in the compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jddl
from jddl import accounting
from jddl.aggregators._exchange import _gathered_sum
from jddl.runtimes.shard_map import device_mesh


def compiled(f, dtype, size):
    mesh = device_mesh((("data", 4),))
    x = jnp.arange(4 * size).reshape(4 * size) % 3  # sums of four are exact in each dtype
    run = jax.jit(
        jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    )
    x = x.astype(dtype)
    return run.lower(x).compile(), x


@pytest.mark.parametrize(
    ("dtype", "bits"), [("bfloat16", "u16"), ("float8_e4m3fn", "u8"), ("float8_e5m2", "u8")]
)
def test_a_ring_moves_bits(dtype, bits):
    """Chunks of 3 of 12 elements, 6 rounds: 18 elements a rank, of 1 or 2 bytes."""
    f = lambda x: jddl.all_reduce(x, "data", "ring")  # noqa: E731
    program, x = compiled(f, dtype, 12)
    text = program.as_text()
    lines = [line for line in text.splitlines() if " collective-permute(" in line]
    assert len(lines) == 6 and all(f"= {bits}[" in line for line in lines)
    width = jnp.dtype(dtype).itemsize
    traced = accounting.measure(f, jax.ShapeDtypeStruct((12,), dtype), axes={"data": 4})
    assert accounting.measure_hlo(program).sent_bytes == traced.sent_bytes == 18 * width
    wanted = np.asarray(x, np.float32).reshape(4, 12).sum(0)
    np.testing.assert_array_equal(np.asarray(program(x), np.float32)[:12], wanted)


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", "u16"), ("float8_e5m2", "u8")])
def test_a_gathered_payload_moves_bits(dtype, bits):
    """What a compressor with a low-precision payload would send: (n-1) times the payload."""

    def decompress(payload, like, key=None):
        return payload.astype(like.dtype)

    compressor = jddl.make("compressors", "identity")._replace(decompress=decompress)
    like = jnp.zeros(6)
    f = lambda x: _gathered_sum(compressor, x, like, "data")  # noqa: E731
    program, x = compiled(f, dtype, 6)
    assert f"= {bits}[" in next(
        line for line in program.as_text().splitlines() if " all-gather(" in line
    )
    sent = 3 * 6 * jnp.dtype(dtype).itemsize
    traced = accounting.measure(f, jax.ShapeDtypeStruct((6,), dtype), axes={"data": 4})
    assert accounting.measure_hlo(program).sent_bytes == traced.sent_bytes == sent
    wanted = np.asarray(x, np.float32).reshape(4, 6).sum(0)
    np.testing.assert_array_equal(np.asarray(program(x))[:6], wanted)
