"""Programs whose bytes cannot be read off the jaxpr are refused, never counted wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from jddl.accounting import measure, measure_hlo

AXES = {"data": 4, "tensor": 2}
X = jax.ShapeDtypeStruct((8, 128), np.float32)


def psum(x):
    return lax.psum(x, "data")


def abstract(**axes):
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def over(f, mesh, names):
    return jax.shard_map(
        f, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False, axis_names=names
    )


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_an_axis_left_to_the_compiler(wrap):
    step = over(psum, abstract(data=4, tensor=2), {"data"})
    message = r"over \['data'\] leaves the mesh axes \['tensor'\] to the compiler.*measure_hlo"
    with pytest.raises(ValueError, match=message):
        measure(wrap(step), X)


def test_an_axis_of_one_moves_nothing_whoever_owns_it():
    step = over(psum, abstract(data=4, tensor=1), {"data"})
    assert measure(step, X).sent_bytes == 1536  # 2 * 3/4 of 2 rows: 1024 bytes


def test_a_shard_map_within_another_is_refused_at_the_outer_one():
    def step(x):
        inner = jax.shard_map(
            lambda v: lax.psum(v, "tensor"), in_specs=P("tensor"), out_specs=P(),
            check_vma=False, axis_names={"tensor"},
        )  # fmt: skip
        return inner(psum(x))

    with pytest.raises(ValueError, match="leaves the mesh axes"):
        measure(over(step, abstract(data=4, tensor=2), {"data"}), X)


def test_the_compiled_program_tells_what_the_compiler_moves():
    """Columns split over 'tensor' by the compiler: a device sums its own 64, 2 rows each.

    The jaxpr says 2 rows of 128 columns: counting it would give twice the bytes.
    """
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    split = jax.sharding.NamedSharding(mesh, P("data", "tensor"))
    kept = jax.sharding.NamedSharding(mesh, P(None, "tensor"))
    step = jax.jit(over(psum, mesh, {"data"}), in_shardings=split, out_shardings=kept)
    found = measure_hlo(step.lower(X).compile(), AXES)
    assert found.sent_bytes == 2 * 3 * (2 * 64 * 4) // 4
    assert [o.axes for o in found.operations] == [("data",)]


def kernel(body, semaphores):
    def step(x):
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(
            body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[anywhere],
            out_specs=anywhere, scratch_shapes=semaphores, name="hop",
        )(x)  # fmt: skip

    return step


def local_copy(x, out, semaphore):
    copy = pltpu.make_async_copy(x, out, semaphore)
    copy.start()
    copy.wait()


def remote_copy(x, out, send, receive):
    right = lax.rem(lax.axis_index("data") + 1, 4)
    copy = pltpu.make_async_remote_copy(
        src_ref=x, dst_ref=out, send_sem=send, recv_sem=receive, device_id=(right,)
    )  # fmt: skip
    copy.start()
    copy.wait()


def in_a_loop(x, out, send, receive):
    @pl.loop(0, 3)
    def _(_):
        remote_copy(x, out, send, receive)


def signal(x, out, semaphore):
    pl.semaphore_signal(semaphore, 1, device_id=(1,))


DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR


@pytest.mark.parametrize(
    ("body", "semaphores", "name"),
    [
        (remote_copy, [DMA, DMA], "dma_start"),
        (in_a_loop, [DMA, DMA], "dma_start"),
        (signal, [REGULAR], "semaphore_signal"),
    ],
)
def test_a_pallas_kernel_that_reaches_another_device(body, semaphores, name):
    message = f"'{name}' in the Pallas kernel 'hop' are not understood: it reaches other devices"
    with pytest.raises(ValueError, match=message):
        measure(kernel(body, semaphores), X, axes={"data": 4})


def test_a_pallas_kernel_that_stays_at_home_is_counted_around():
    def step(x):
        return lax.psum(kernel(local_copy, [DMA])(x), "data")

    found = measure(step, X, axes={"data": 4})
    assert found.sent_bytes == 2 * 3 * 4096 // 4
    assert found.notes == ("FLOPs of a pallas_call are not counted",)


def test_a_native_collective_in_a_kernel_is_refused_too():
    def body(x, out):
        out[...] = lax.psum(x[...], "data")

    def step(x):
        shape = jax.ShapeDtypeStruct((8, 128), jnp.float32)
        return pl.pallas_call(body, out_shape=shape, name="hop")(x)

    with pytest.raises(ValueError, match="'psum' in the Pallas kernel 'hop'"):
        measure(step, X, axes={"data": 4})
