"""Steps written by hand, measured against numbers worked out by hand."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jddl import accounting
from jddl.accounting import measure, measure_hlo

X = jax.ShapeDtypeStruct((120,), np.float32)  # 480 bytes
AXES = {"data": 4, "tensor": 2}


def plain(m):
    return m.sent_bytes, m.rounds, m.calls


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda x: lax.psum(x, "data"), (2 * 3 * 480 // 4, 6, 1)),
        (lambda x: lax.psum(x, ("data", "tensor")), (2 * 7 * 480 // 8, 14, 1)),
        (lambda x: lax.pmax(x, "tensor"), (480, 2, 1)),
        (lambda x: lax.psum_scatter(x, "data", tiled=True), (3 * 480 // 4, 3, 1)),
        (lambda x: lax.all_gather(x, "data"), (3 * 480, 3, 1)),
        (lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), (3 * 480 // 4, 3, 1)),
        (lambda x: lax.ppermute(x, "data", [(0, 1), (2, 2)]), (480, 1, 1)),
        (lambda x: lax.ppermute(x, "data", [(1, 1)]), (0, 0, 0)),
        (lambda x: lax.fori_loop(0, 5, lambda i, v: lax.psum(v, "data"), x), (5 * 720, 30, 5)),
        (lambda x: lax.scan(lambda c, _: (lax.scan(lambda d, _: (lax.ppermute(d, "data", [(0, 1)]), None),
                                                  c, None, length=3)[0], None), x, None, length=2)[0],
         (6 * 480, 6, 6)),
        (lambda x: jax.jit(lambda v: jax.checkpoint(lambda w: lax.psum(w, "data"))(v))(x), (720, 6, 1)),
        (lambda x: (x, lax.psum(x, "data"))[0], (0, 0, 0)),  # dead code does not travel
        (lambda x: lax.cond(x[0] > 0, lambda v: lax.psum(v, "data"), lambda v: v, x), (720, 6, 1)),
    ],
)  # fmt: skip
def test_hand_written_steps(step, expected):
    assert plain(measure(step, X, axes=AXES)) == expected


def test_ranks_are_told_apart():
    m = measure(lambda x: lax.ppermute(x, "data", [(0, 1), (0 + 1, 3)]), X, axes=AXES)
    np.testing.assert_array_equal(m.sent_vector, [480, 480, 480, 480, 0, 0, 0, 0])
    np.testing.assert_array_equal(m.received_vector, [0, 0, 480, 480, 0, 0, 480, 480])


def test_branches_follow_a_known_step_number():
    def step(number, x):
        return lax.cond(number % 4 == 3, lambda v: lax.psum(v, "data"), lambda v: v, x)

    assert [measure(step, n, X, axes=AXES).sent_bytes for n in range(5)] == [0, 0, 0, 720, 0]
    assert measure(step, jax.ShapeDtypeStruct((), np.int32), X, axes=AXES).notes


def test_a_while_of_unknown_length_around_a_collective_is_an_error():
    with pytest.raises(ValueError, match="trip count"):
        measure(
            lambda x: lax.while_loop(lambda v: v[0] < 1, lambda v: lax.psum(v, "data"), x),
            X,
            axes=AXES,
        )


def test_flops_of_a_gradient():
    def loss(w, x):
        return jnp.sum((x @ w) ** 2)

    w, x = jax.ShapeDtypeStruct((30, 20), np.float32), jax.ShapeDtypeStruct((10, 30), np.float32)
    assert measure(jax.grad(loss), w, x).flops == 2 * (2 * 10 * 30 * 20)  # forward and dw


def test_marked_payload_replaces_operands_and_costs_nothing():
    def step(x):
        with accounting.exchange():
            y = accounting.payload(x[:10])
            return lax.all_gather(y, "data"), lax.all_gather(y, "data")

    assert measure(step, X, axes=AXES).payload_bytes == 40
    assert measure(lambda x: lax.psum(x, "data"), X, axes=AXES).payload_bytes == 480
    marked = jax.jit(accounting.payload).lower(X).compile().as_text()
    assert "custom-call" not in marked and "fusion" not in marked


def test_jaxpr_and_hlo_agree_on_a_two_axis_mesh():
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)

    def step(x):
        y = lax.psum(x, "tensor") + lax.fori_loop(0, 3, lambda i, v: v + lax.ppermute(
            v, "data", [(0, 1), (1, 2), (2, 3), (3, 0)]), x)  # fmt: skip
        return lax.psum_scatter(y, "data", tiled=True)

    f = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P(), out_specs=P("data"), check_vma=False))
    traced, compiled = measure(f, X), measure_hlo(f.lower(X).compile())
    assert traced.sent_bytes == compiled.sent_bytes == 480 + 3 * 480 + 360
    assert traced.axes == {"data": 4, "tensor": 2}


HEAD = "HloModule m, num_partitions=8\n\nENTRY %main (a: f32[100]) -> f32[100] {\n"
SUM = "to_apply=%add"


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("%r = f32[100] all-reduce(f32[100] %a), replica_groups={{0,1},{2,3},{4,5},{6,7}}, " + SUM, 400),
        ("%r = f32[100] all-reduce(f32[100] %a), replica_groups={}, " + SUM, 700),
        ("%r = f32[100] all-reduce(f32[100] %a), replica_groups=[4,2]<=[8], " + SUM, 400),
        ("%r = f32[100] all-reduce(f32[100] %a), replica_groups=[2,4]<=[4,2]T(1,0), " + SUM, 600),
        ("%r = f32[100] all-reduce(%a), replica_groups=mesh['data'=4,'tensor'=2] {'data'}, " + SUM, 600),
        ("%r = f32[100] all-reduce-start(f32[100] %a), replica_groups={{0,1},{2,3}}, " + SUM + "\n"
         "  %d = f32[100] all-reduce-done(f32[100] %r)", 400),
        ("%r = (f32[100], f32[100]) collective-permute-start(f32[100] %a), "
         "source_target_pairs={{0,1},{1,0}}", 400),
        ("%r = bf16[8,100] all-gather(bf16[100] %a), replica_groups=[1,8]<=[8]", 7 * 200),
    ],
)  # fmt: skip
def test_hlo_forms(line, sent):
    text = HEAD + "  %a = f32[100] parameter(0)\n  " + line + "\n}\n"
    assert measure_hlo(text).sent_bytes == sent


@pytest.mark.parametrize(
    "line",
    ["%r = f32[100] all-reduce(f32[100] %a), replica_groups=<new form>, to_apply=%add",
     "%r = zz[100] all-reduce(zz[100] %a), replica_groups={}"],
)  # fmt: skip
def test_an_unknown_form_is_an_error(line):
    with pytest.raises(ValueError, match="not understood"):
        measure_hlo(HEAD + "  " + line + "\n}\n")


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
    import jddl
    from jddl.experiment import abstract_inputs
    from jddl.loop import compiled_step, jitted_step

    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    traced = measure(jitted_step(experiment), *abstract_inputs(experiment))
    assert {row["operation"] for row in traced.by_operation} == {"ppermute"}
    compiled = compiled_step(experiment)
    assert "all-reduce" not in compiled.as_text()
    assert measure_hlo(compiled).sent_bytes == traced.sent_bytes
    native = jddl.validate({"all_reduce": "native", "model": "mlp(hidden=16)"})
    assert "all-reduce" in compiled_step(native).as_text()  # the guard can fail


def test_measuring_starts_no_backend():
    code = (
        "import jddl, jax; from jddl.loop import traffic\n"
        "traffic(jddl.validate({'aggregator': 'error_feedback(topk(ratio=0.1))'}))\n"
        "jax.config.update('jax_num_cpu_devices', 3); assert jax.device_count() == 3"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
