"""Branches and loops: what known numbers decide, and what is said where they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from jddl.accounting import measure
from jddl.accounting._fold import fold

AXES = {"data": 4}
X = jax.ShapeDtypeStruct((120,), np.float32)  # a psum over 4 sends 720 bytes
INT = jax.ShapeDtypeStruct((), np.int32)


def psum(x):
    return lax.psum(x, "data")


def local_sgd(step, x):
    """Average the parameters every fourth step (H = 4), the scalar loss in each."""
    loss = lax.pmean(x[0], "data")  # 4 bytes: 6 sent
    x = lax.cond((step + 1) % 4 == 0, psum, lambda v: v, x - loss)
    return step + 1, x


def test_the_step_number_decides():
    found = [measure(local_sgd, step, X, axes=AXES) for step in range(5)]
    assert [m.sent_bytes for m in found] == [6, 6, 6, 726, 6]
    assert [m.notes for m in found] == [()] * 5


@pytest.mark.parametrize("three", [3, np.int32(3), np.int64(3), np.array(3), np.uint8(3)])
def test_numbers_that_are_known(three):
    assert measure(local_sgd, three, X, axes=AXES).sent_bytes == 726


@pytest.mark.parametrize("unknown", [INT, np.float32(3), np.array([3])])
def test_numbers_that_are_not(unknown):
    def step(n, x):
        return lax.cond(jnp.ravel(n)[0] == 3, psum, lambda v: v, x)

    found = measure(step, unknown, X, axes=AXES)
    assert found.sent_bytes == 720
    assert "undecided branch" in found.notes[0]


def test_a_bool_is_known():
    def step(flag, x):
        return lax.cond(flag, psum, lambda v: v, x)

    assert [measure(step, f, X, axes=AXES).sent_bytes for f in (True, False)] == [720, 0]


def test_switch_takes_the_dearest_and_clips_what_is_known():
    branches = [lambda v: v, lambda v: psum(psum(v)), psum]
    assert [
        measure(lambda i, x: lax.switch(i, branches, x), i, X, axes=AXES).sent_bytes
        for i in (-5, 0, 1, 2, 9)
    ] == [0, 0, 1440, 720, 720]
    found = measure(lambda i, x: lax.switch(i, branches, x), INT, X, axes=AXES)
    assert (found.sent_bytes, len(found.notes)) == (1440, 1)


def test_branches_of_equal_price_need_no_note():
    def step(i, x):
        return lax.cond(i > 0, lambda v: 2 * v, lambda v: v, psum(x))

    assert measure(step, INT, X, axes=AXES).notes == ()


def test_known_numbers_pass_through_jit_shard_map_and_the_constants_of_a_scan():
    def step(n, x):  # n known: the branch in the scan is decided
        n = jax.jit(lambda a: a // 2)(n)
        scan = lax.scan(lambda c, _: (lax.cond(n == 2, psum, lambda v: v, c), None), x, None, 5)
        return scan[0]

    mapped = jax.jit(
        jax.shard_map(
            step, mesh=AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,)),
            in_specs=(P(), P()), out_specs=P(), check_vma=False,
        )
    )  # fmt: skip
    for n, sent in [(3, 0), (4, 3600), (5, 3600), (6, 0)]:
        assert measure(step, n, X, axes=AXES).sent_bytes == sent
        assert measure(mapped, n, X).sent_bytes == sent


def test_a_carry_is_not_taken_for_its_first_value():
    def body(carry, _):
        n, x = carry
        return (n + 1, lax.cond(n == 2, psum, lambda v: v, x)), None

    found = measure(lambda n, x: lax.scan(body, (n, x), None, 5)[0][1], 0, X, axes=AXES)
    assert (found.sent_bytes, len(found.notes)) == (3600, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a // 3, lambda a: a % 3, lambda a: lax.div(a, 3), lambda a: lax.rem(a, 3),
        lambda a: -a * 5 - 1, lambda a: a**3, lambda a: jnp.abs(a), lambda a: jnp.sign(a),
        lambda a: jnp.clip(a, -2, 2), lambda a: lax.clamp(-3, a, 3), lambda a: jnp.minimum(a, 1),
        lambda a: jnp.maximum(a, 1), lambda a: jnp.where(a > 0, a, 7), lambda a: a << 2,
        lambda a: a >> 1, lambda a: a & 6, lambda a: a | 9, lambda a: a ^ 5, lambda a: ~a,
        lambda a: jnp.square(a), lambda a: (a <= 1) & (a != -4) | (a >= 5), lambda a: a == 4,
        lambda a: a.astype(jnp.uint8), lambda a: a * 2**30, lambda a: jnp.int32(a < 2) + a,
        lambda a: jnp.logical_not(a > 1), lambda a: lax.optimization_barrier((a, a + 1))[1],
    ],
)  # fmt: skip
@pytest.mark.parametrize("a", [-7, -1, 0, 4, 8])
def test_the_table_computes_what_jax_does(function, a):
    """A step that communicates where f(a) is what JAX computed, and only there."""
    expected = function(jnp.int32(a))

    def step(a, x):
        return lax.cond(function(a) == expected.item(), psum, lambda v: (v, psum(psum(v)))[1], x)

    found = measure(step, np.int32(a), X, axes=AXES)
    assert (found.sent_bytes, found.notes) == (720, ())


def test_a_division_by_zero_stays_unknown():
    closed = jax.make_jaxpr(lax.div)(np.int32(1), np.int32(0))
    assert fold(closed.jaxpr.eqns[0], [np.array(1), np.array(0)]) == [None]


def doubling(x):
    return lax.while_loop(lambda v: v[0] < 1, psum, x)


def test_a_while_loop_asks_for_its_trip_count():
    with pytest.raises(ValueError, match=r"psum.*trip_counts=\[\.\.\.\]"):
        measure(doubling, X, axes=AXES)
    assert measure(doubling, X, axes=AXES, trip_counts=[7]).sent_bytes == 7 * 720
    with pytest.raises(ValueError, match="more than the loops"):
        measure(doubling, X, axes=AXES, trip_counts=[7, 8])


def test_trip_counts_go_from_the_inner_loop_outwards_and_a_test_runs_once_more():
    def step(x):  # 3 rounds of (2 psums in a loop); the outer test is asked 4 times
        return lax.while_loop(lambda v: psum(v)[0] < 1, doubling, x)

    found = measure(step, X, axes=AXES, trip_counts=[2, 3])
    assert found.sent_bytes == 3 * 2 * 720 + 4 * 720


def test_a_while_loop_that_only_computes_is_noted():
    def step(w):
        return lax.while_loop(lambda v: v[0, 0] < 1, lambda v: v @ v, w)

    found = measure(step, jax.ShapeDtypeStruct((5, 5), np.float32), axes=AXES)
    assert found.flops == 250
    assert "while" in found.notes[0]
