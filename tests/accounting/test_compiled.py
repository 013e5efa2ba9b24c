"""The bytes of a traced program equal those of the compiled one, on eight devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jddl.accounting import measure, measure_hlo

X = jax.ShapeDtypeStruct((960,), np.float32)  # 3840 bytes on each device
AXES = {"data": 4, "tensor": 2}
RING = [(i, (i + 1) % 4) for i in range(4)]


def ring(x):
    return lax.fori_loop(0, 3, lambda _, v: x + lax.ppermute(v, "data", RING), x)


STEPS = {  # sent bytes, rounds of the traced program
    "psum": (lambda x: lax.psum(x, ("data", "tensor")), 6720, 14),
    "psum, slow axis": (lambda x: lax.psum(x, "data"), 5760, 6),
    "psum, fast axis": (lambda x: lax.psum(x, "tensor"), 3840, 2),
    "ring in a loop": (ring, 3 * 3840, 3),
    "all_gather": (lambda x: lax.all_gather(x, "tensor"), 3840, 1),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "data", tiled=True), 2880, 3),
    "all_to_all": (lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), 2880, 3),
    "pmax": (lambda x: lax.pmax(x, "data"), 5760, 6),
    "both axes in turn": (lambda x: lax.psum(lax.psum_scatter(x, "tensor", tiled=True), "data"),
                          1920 + 2880, 7),
    "partial permutation": (lambda x: lax.ppermute(x, "data", [(0, 2), (2, 1)]), 3840, 1),
    "undecided branch": (lambda x: lax.cond(x[0] > 0, lambda v: lax.psum(v, "data"),
                                            lambda v: v, x), 5760, 6),
    "scan of a scan": (lambda x: lax.scan(lambda c, _: (ring(c), None), x, None, length=2)[0],
                       6 * 3840, 6),
}  # fmt: skip


def compiled_and_traced(step, x=X, check_vma=False):
    assert jax.device_count() >= 8
    mesh = jax.make_mesh(
        (4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:8]
    )
    mapped = jax.jit(
        jax.shard_map(
            step, mesh=mesh, in_specs=P(), out_specs=P(("data", "tensor")), check_vma=check_vma
        )
    )
    return measure_hlo(mapped.lower(x).compile(), AXES), measure(mapped, x)


@pytest.mark.parametrize("name", STEPS)
def test_three_ways_agree(name):
    step, sent, rounds = STEPS[name]
    hlo, through = compiled_and_traced(step)
    alone = measure(step, X, axes=AXES)
    for found in (alone, through, hlo):
        assert (found.sent_bytes, found.rounds) == (sent, rounds)
    for vector in ("sent_vector", "received_vector"):
        np.testing.assert_array_equal(getattr(alone, vector), getattr(hlo, vector))
        np.testing.assert_array_equal(getattr(alone, vector), getattr(through, vector))
    assert [o.axes for o in hlo.operations] == [o.axes for o in alone.operations]


def test_a_gradient_step_with_what_the_compiler_merges():
    """Two all-reduces become one: bytes stay, calls and rounds do not."""

    def step(x):
        return lax.psum(x, "data").sum() + lax.psum(x[1:] * 3, "data") + jnp.zeros(8)[:1]

    hlo, traced = compiled_and_traced(step)
    assert hlo.sent_bytes == traced.sent_bytes == 5760 + 3 * 2 * 959
    assert (traced.calls, traced.rounds) == (2, 12)
    assert hlo.calls <= 2 and hlo.rounds <= 12


def test_a_loop_of_unknown_length_in_a_compiled_program():
    def step(x):
        return lax.while_loop(lambda v: v.sum() < 3, lambda v: lax.psum(v, "data"), x)

    with pytest.raises(ValueError, match="no known trip count"):
        compiled_and_traced(step)


def test_a_sharding_outside_shard_map_is_in_the_compiled_program_only():
    """The compiler sums what it split: 4 bytes over 8 devices, 7 sent."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:8])
    split = jax.sharding.NamedSharding(mesh, P("data"))
    whole = jax.sharding.NamedSharding(mesh, P())
    f = jax.jit(jnp.sum, in_shardings=split, out_shardings=whole)
    assert measure_hlo(f.lower(X).compile()).sent_bytes == 7
    assert measure(f, X).sent_bytes == 0


def test_a_scope_survives_compilation():
    def step(x):
        with jax.named_scope("averaging"):
            return lax.psum(x, "data")

    hlo, _ = compiled_and_traced(step)
    assert "averaging" in hlo.operations[0].scope
