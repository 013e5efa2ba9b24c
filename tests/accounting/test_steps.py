"""Steps written by hand, measured against numbers worked out by hand.

The mesh is data=4 by tensor=2 and x has 120 floats: 480 bytes. Rank = 2 * data + tensor.
"""

from functools import partial

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from jddl.accounting import measure

AXES = {"data": 4, "tensor": 2}
X = jax.ShapeDtypeStruct((120,), np.float32)
RING = [(i, (i + 1) % 4) for i in range(4)]


def nested_scan(x):
    def inner(carry, _):
        return lax.ppermute(carry, "data", RING), None

    def outer(carry, _):
        return lax.scan(inner, carry, None, length=3)[0], None

    return lax.scan(outer, x, None, length=2)[0]


def ring_all_reduce(x):
    """Reduce-scatter and all-gather of 4 chunks of 30 floats, 3 rounds each."""
    chunks = x.reshape(4, 30)  # f32[4, 30]
    place = lax.axis_index("data")
    for step in range(3):
        arrived = lax.ppermute(chunks[(place - step) % 4], "data", RING)
        chunks = chunks.at[(place - step - 1) % 4].add(arrived)
    for step in range(3):
        arrived = lax.ppermute(chunks[(place + 1 - step) % 4], "data", RING)
        chunks = chunks.at[(place - step) % 4].set(arrived)
    return chunks.reshape(120)


@jax.custom_vjp
def conjugate(x):
    return lax.psum(x, "tensor")


conjugate.defvjp(lambda x: (lax.psum(x, "tensor"), None), lambda _, ct: (ct,))


@jax.custom_jvp
def with_rule(x):
    return lax.psum(x, "tensor")


with_rule.defjvp(lambda xs, ts: (with_rule(*xs), ts[0]))

CASES = {
    # psum over n: 2 (n-1)/n * 480 bytes in 2 (n-1) rounds
    "psum": (lambda x: lax.psum(x, "data"), 720, 6, 1),
    "psum over both axes": (lambda x: lax.psum(x, ("data", "tensor")), 840, 14, 1),
    "pmean": (lambda x: lax.pmean(x, "tensor"), 480, 2, 1),
    "pmax and pmin": (lambda x: lax.pmax(x, "data") + lax.pmin(x, "data"), 1440, 12, 2),
    "groups of a psum": (
        lambda x: lax.psum(x, "data", axis_index_groups=[[0, 3], [1, 2]]),
        480,
        2,
        1,
    ),
    "reduce_scatter": (lambda x: lax.psum_scatter(x, "data", tiled=True), 360, 3, 1),
    "all_gather": (lambda x: lax.all_gather(x, "data"), 1440, 3, 1),
    "reduce_scatter, all_gather": (
        lambda x: lax.all_gather(lax.psum_scatter(x, "data", tiled=True), "data", tiled=True),
        360 + 3 * 120,
        6,
        2,
    ),
    "all_to_all": (lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), 360, 3, 1),
    "ring by hand": (ring_all_reduce, 6 * 120, 6, 6),
    "nested scan": (nested_scan, 6 * 480, 6, 6),
    "fori_loop": (
        lambda x: lax.fori_loop(0, 5, lambda _, v: lax.psum(v, "tensor"), x),
        5 * 480,
        10,
        5,
    ),
    "jit in jit": (lambda x: jax.jit(jax.jit(lambda v: lax.psum(v, "data")))(x), 720, 6, 1),
    "remat": (jax.checkpoint(lambda x: lax.psum(x, "data")), 720, 6, 1),
    "custom_vjp": (conjugate, 480, 2, 1),
    "custom_vjp, differentiated": (jax.grad(lambda x: conjugate(x).sum() ** 2), 480, 2, 1),
    "custom_jvp": (with_rule, 480, 2, 1),
    "vmap": (jax.vmap(lambda row: lax.psum(row, "tensor"), axis_size=1), 480, 2, 1),
    "within one rank": (lambda x: lax.ppermute(x, "data", [(1, 1), (2, 2)]), 0, 0, 0),
    "dead code": (lambda x: (lax.psum(x, "data"), x)[1], 0, 0, 0),
    "dead code in jit": (
        lambda x: jax.jit(lambda v: (lax.psum(v, "data"), v))(x)[1],
        0,
        0,
        0,
    ),
    "nothing": (lambda x: x * 2, 0, 0, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_rounds_and_calls(name):
    step, sent, rounds, calls = CASES[name]
    x = jax.ShapeDtypeStruct((1, 120), np.float32) if name == "vmap" else X
    found = measure(step, x, axes=AXES)
    assert (found.sent_bytes, found.rounds, found.calls) == (sent, rounds, calls)
    assert found.received_bytes == sent  # each of them is even over the ranks
    assert found.notes == ()
    assert found.sent_vector.shape == (8,)


def test_ranks_of_a_partial_permutation():
    """data 0 -> 1 -> 3 for both values of tensor; nobody else moves."""
    found = measure(lambda x: lax.ppermute(x, "data", [(0, 1), (1, 3), (2, 2)]), X, axes=AXES)
    np.testing.assert_array_equal(found.sent_vector, [480, 480, 480, 480, 0, 0, 0, 0])
    np.testing.assert_array_equal(found.received_vector, [0, 0, 480, 480, 0, 0, 480, 480])
    assert found.rounds == 1
    assert found.sent_vector.dtype == np.int64


def test_the_busiest_rank_is_of_the_sum():
    def tree_broadcast(x):
        x = lax.ppermute(x, "data", [(0, 1)])
        x = lax.ppermute(x, "data", [(0, 2)])
        return lax.ppermute(x, "data", [(1, 3)])

    found = measure(tree_broadcast, X, axes={"data": 4})
    np.testing.assert_array_equal(found.sent_vector, [960, 480, 0, 0])
    assert (found.sent_bytes, found.received_bytes) == (960, 480)
    (row,) = found.by_operation
    assert row == {
        "operation": "ppermute",
        "axes": ("data",),
        "calls": 3,
        "rounds": 3,
        "payload_bytes": 1440,
        "sent_bytes": 960,
        "received_bytes": 480,
    }


def test_a_permutation_over_two_axes_counts_positions_of_the_product():
    step = partial(lax.ppermute, axis_name=("data", "tensor"), perm=[(0, 7), (5, 1)])
    found = measure(step, X, axes=AXES)
    np.testing.assert_array_equal(np.flatnonzero(found.sent_vector), [0, 5])
    np.testing.assert_array_equal(np.flatnonzero(found.received_vector), [1, 7])


def test_groups_of_different_sizes_are_told_apart():
    def step(x):
        return lax.psum(x, "data", axis_index_groups=[[0], [1, 2, 3]])

    found = measure(step, X, axes={"data": 4})
    np.testing.assert_array_equal(found.sent_vector, [0, 640, 640, 640])  # 2 * 2/3 * 480
    assert (found.rounds, found.operations[0].group_size) == (4, 3)


def test_a_broadcast_is_a_chain_from_its_source():
    found = measure(lambda x: lax.pbroadcast(x, ("data",), 2), X, axes={"data": 4})
    np.testing.assert_array_equal(found.sent_vector, [480, 480, 480, 0])  # 2, 0, 1, 3
    np.testing.assert_array_equal(found.received_vector, [480, 480, 0, 480])
    assert found.rounds == 3


def test_bytes_are_exact():
    """A third of a byte each: 300 calls over 3 ranks of 1 byte are 400 bytes."""
    byte = jax.ShapeDtypeStruct((1,), np.int8)

    def step(x):
        return lax.fori_loop(0, 300, lambda _, v: lax.psum(v, "data"), x)

    found = measure(step, byte, axes={"data": 3})
    assert found.sent_bytes == 400 and isinstance(found.sent_bytes, int)
    once = measure(lambda x: lax.psum(x, "data"), byte, axes={"data": 3})
    assert once.sent_bytes == 4 / 3
    assert once.sent_vector.dtype == np.float64


def test_a_mesh_of_one_moves_nothing():
    found = measure(lambda x: lax.all_gather(lax.psum(x, "data"), "data"), X, axes={"data": 1})
    assert (found.sent_bytes, found.payload_bytes, found.operations) == (0, 0, ())


def test_the_record_of_an_operation():
    def step(x):
        with jax.named_scope("outer"):
            return jax.jit(lambda v: lax.psum(v, ("data", "tensor")))(x)

    half = jax.ShapeDtypeStruct((6, 20), jax.numpy.bfloat16)
    (found,) = measure(step, half, axes=AXES).operations
    assert (found.primitive, found.axes, found.group_size) == ("psum", ("data", "tensor"), 8)
    assert (found.operand_bytes, found.dtype, found.payload_bytes) == (240, "bfloat16", 240)
    assert (found.rounds, found.calls, found.scope) == (14, 1, "outer")
    assert list(found.sent) == list(found.received) == [420] * 8


def test_elements_smaller_than_a_byte_and_keys():
    nibbles = jax.ShapeDtypeStruct((10,), jax.numpy.int4)
    assert measure(lambda x: lax.ppermute(x, "data", RING), nibbles, axes=AXES).sent_bytes == 5
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))  # 8 bytes each
    assert measure(lambda x: lax.ppermute(x, "data", RING), keys, axes=AXES).sent_bytes == 24


def mesh(**axes):
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_shard_map_brings_its_mesh(wrap):
    def step(x):  # f32[120] of a whole f32[480]
        return lax.psum(x, "tensor") + lax.ppermute(x, "data", [(0, 1)])

    mapped = jax.shard_map(
        step, mesh=mesh(data=4, tensor=2), in_specs=P("data"), out_specs=P("data"), check_vma=False
    )
    found = measure(wrap(mapped), jax.ShapeDtypeStruct((480,), np.float32))
    assert found.axes == AXES
    np.testing.assert_array_equal(found.sent_vector, [960, 960] + 6 * [480])


def test_the_sum_that_varying_types_put_in_is_seen_through_shard_map_only():
    def gradient(w, x):
        return jax.grad(lambda w: (x @ w).sum())(w)

    w, x = jax.ShapeDtypeStruct((120,), np.float32), jax.ShapeDtypeStruct((8, 120), np.float32)

    def mapped(check_vma):
        return jax.shard_map(
            gradient,
            mesh=mesh(data=8),
            in_specs=(P(), P("data")),
            out_specs=P(),
            check_vma=check_vma,
        )

    found = measure(mapped(True), w, x)
    assert (found.sent_bytes, found.operations[0].primitive) == (840, "psum_invariant")
    assert measure(mapped(False), w, x).sent_bytes == 0
    assert measure(gradient, w, x, axes={"data": 8}).sent_bytes == 0


def test_meshes_that_differ_are_an_error():
    def step(x):
        for size in (4, 8):
            x = jax.shard_map(
                lambda v: lax.psum(v, "data"), mesh=mesh(data=size), in_specs=P(), out_specs=P(),
                check_vma=False,
            )(x)  # fmt: skip
        return x

    with pytest.raises(ValueError, match=r"'data': 8.*'data': 4"):
        measure(step, X)
