"""A native all-reduce of gradients hides in no step that carries its own collective."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jddl
from jddl.accounting import measure, measure_hlo
from jddl.experiment import abstract_inputs
from jddl.loop import compiled_step, jitted_step


def test_a_native_all_reduce_hidden_by_varying_types_is_seen_through_shard_map():
    """With check_vma=True JAX sums the gradient itself: a custom ring after it is bypassed."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def gradient(w, x):
        return jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

    shapes = (jax.ShapeDtypeStruct((5,), np.float32), jax.ShapeDtypeStruct((16, 5), np.float32))
    found = []
    for check in (True, False):
        f = jax.shard_map(
            gradient, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=check
        )
        found.append(measure(f, *shapes).sent_bytes)
    assert found == [35, 0]  # 2 * 7/8 * 20 bytes


def test_no_native_all_reduce_in_a_custom_step():
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    traced = measure(jitted_step(experiment), *abstract_inputs(experiment))
    assert {row["operation"] for row in traced.by_operation} == {"ppermute"}
    compiled = compiled_step(experiment)
    assert "all-reduce" not in compiled.as_text()
    assert measure_hlo(compiled).sent_bytes == traced.sent_bytes
    native = jddl.validate({"all_reduce": "native", "model": "mlp(hidden=16)"})
    assert "all-reduce" in compiled_step(native).as_text()  # the guard can fail
