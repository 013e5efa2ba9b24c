"""Training policies: speeds in the summary, rematerialisation, optimisers, schedules."""

import math
import time

import jax
import numpy as np
import pytest

import jddl
from jddl import assembly, throughput
from jddl.experiment import batch_shapes
from jddl.loop import traffic
from jddl.records import Context, Model
from jddl.remat import rematerialised
from tests import in_float64

MLP = {"runtime": "vmap", "mesh": "data=4", "model": "mlp(hidden=16)", "log_every": 2, "steps": 6}


# --- speeds ------------------------------------------------------------------------------------


def test_the_first_log_interval_and_outliers_do_not_count():
    assert throughput.seconds_a_step([(5, 100.0), (5, 1.0), (5, 2.0), (1, 90.0)]) == 0.4
    assert throughput.seconds_a_step([(5, 100.0)]) is None


def dense_flops(batch, inputs, hidden, outputs):
    """2 m n k of each product; the first layer needs no gradient of its inputs."""
    return 2 * batch * (2 * inputs * hidden + 3 * hidden * hidden + 3 * hidden * outputs)


@pytest.mark.parametrize("more", [
    {}, {"precision": "bfloat16"}, {"accumulate": 3}, {"mesh": "data=1"},
    {"batch_size": 50, "uneven_batch": "pad"}, {"aggregator": "compressed(topk(ratio=0.1))"},
], ids=str)  # fmt: skip
def test_model_flops_are_those_of_the_layers_whatever_the_run(more):
    experiment = jddl.validate(MLP | more)
    expected = dense_flops(experiment.config.batch_size, 64, 16, 10)
    assert throughput.model_flops(experiment) == expected


def test_the_summary_holds_speeds_and_no_metric_does(tmp_path):
    seen = []

    def slow(row):
        seen.append(row["step"])
        time.sleep(0.1)  # 0.05 s a step at the least

    result = jddl.train(MLP, tmp_path / "run", progress=slow)
    assert seen == [2, 4, 6]
    rate = result.summary["examples_per_second"]
    assert 0 < rate < 240 / 0.05
    flops = result.summary["model_flops_per_second"]
    np.testing.assert_allclose(flops, rate * dense_flops(1, 64, 16, 10), rtol=1e-12)
    assert "tokens_per_second" not in result.summary
    assert not [k for row in result.history for k in row if "second" in k]
    once = jddl.train(MLP | {"steps": 2}).summary
    assert not [k for k in once if k.endswith("per_second")]  # one interval: nothing but compiling


def test_facts_of_the_task_give_tokens_and_bits(monkeypatch):
    experiment = jddl.validate(MLP)
    facts = {"tokens_per_example": 64, "bytes_per_token": 4.0}
    experiment = experiment._replace(task=experiment.task._replace(facts=facts))
    found = throughput.speeds(experiment, [(1, 9.0), (1, 0.5)])
    assert found["examples_per_second"] == 480 and found["tokens_per_second"] == 480 * 64
    bits = throughput.bits_per_byte({"validation_loss": 8 * math.log(2)}, facts)
    assert bits == {"validation_bits_per_byte": pytest.approx(2.0, rel=1e-15)}
    assert throughput.bits_per_byte({"validation_loss": 1.0}, {}) == {}


# --- rematerialisation -------------------------------------------------------------------------

RECOMPUTE = ("none", "selective", "full")


def kept_and_flops(model, policy, rows=24):
    """Bytes that the backward pass is handed, and FLOPs of forward and backward."""
    experiment = jddl.validate({"model": model, "mesh": "data=1", "batch_size": rows})
    changed, task = rematerialised(experiment.model, policy), experiment.task
    batch = batch_shapes(experiment, 1)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(changed.init, key)

    def loss(params, stats, batch, key):
        ctx = Context(key, True, assembly.places(batch))
        return assembly.sums(task, changed, params, stats, batch, ctx)[0]["loss"][0]

    def pull_back(params, *rest):
        return jax.vjp(lambda p: loss(p, *rest), params)[1]

    args = (params, stats, batch, key)
    one = jax.vmap(pull_back, axis_name="data", in_axes=None, axis_size=1)
    kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(one, *args)))
    return kept, jddl.measure(jax.grad(loss), *args, axes={"data": 1}).flops


@pytest.mark.parametrize(("model", "block_flops"), [
    ("mlp(hidden=32, layers=5)", 5 * 2 * 24 * 32 * 32),
    ("small_cnn(channels=4, layers=2, norm='batch')", 2 * 2 * 24 * 64 * 9 * 4 * 4),
    ("small_cnn(channels=4, layers=2, norm='group', groups=2)", 2 * 2 * 24 * 64 * 9 * 4 * 4),
])  # fmt: skip
def test_what_is_kept_shrinks_and_a_forward_pass_of_the_blocks_is_the_price(model, block_flops):
    """A convolution's padding counts."""
    found = {policy: kept_and_flops(model, policy) for policy in RECOMPUTE}
    assert found["none"][0] > found["selective"][0] > found["full"][0]
    assert found["selective"][1] == found["none"][1]
    assert found["full"][1] == found["none"][1] + block_flops


def test_full_keeps_of_a_block_its_input_alone():
    few, many = (kept_and_flops(f"mlp(hidden=32, layers={n})", "full")[0] for n in (2, 5))
    assert many - few == 3 * 4 * (24 * 32 + 32 * 32 + 32)  # its input, and the parameters


@pytest.mark.parametrize("model", [
    "mlp(hidden=8, drop=0.5)", "small_cnn(channels=2, layers=1, norm='batch')",
])  # fmt: skip
def test_training_is_the_same_in_float64(model):
    config = {"model": model, "runtime": "vmap", "mesh": "data=2", "batch_size": 4}
    with jax.enable_x64(True):
        states = [in_float64.train(jddl.validate(config | {"remat": p}), 2) for p in RECOMPUTE]
        for state, _ in states[1:]:
            in_float64.close(state.params, states[0][0].params)
            in_float64.close(state.stats, states[0][0].stats)


def test_selective_sends_nothing_twice_and_full_does():
    """Three layers of batch normalisation send mean and variance; the last two are blocks."""
    config = {"model": "small_cnn(channels=4, layers=2, norm='batch')", "batch_size": 16}
    sent = {p: traffic(jddl.validate(config | {"remat": p}))["sent_bytes"] for p in RECOMPUTE}
    assert sent["selective"] == sent["none"]
    assert sent["full"] == sent["none"] + 2 * 2 * (4 * 4) * 2 * 7 // 8


def test_a_plain_weight_of_a_blocks_sums_stays_plain():
    def block(params, stats, x, ctx):
        return params * x, stats, {"load": (x.sum(), 3.0), "seen": (x.sum(), x.max())}

    model = rematerialised(Model(*[None] * 3, block, None), "full")
    weights = []

    def loss(p):
        x, _, aux = model.block(p, {}, np.float32(2.0), Context())
        weights.append({k: w for k, (_, w) in aux.items()})
        return x * aux["load"][0]

    assert jax.grad(loss)(np.float32(1.0)) == 4.0
    assert weights[0]["load"] == 3.0 and type(weights[0]["load"]) is float
    assert not isinstance(weights[0]["seen"], float)


def test_an_unknown_remat_is_named():
    with pytest.raises(ValueError, match="remat is one of none, selective, full, not 'half'"):
        jddl.validate({"remat": "half"})
