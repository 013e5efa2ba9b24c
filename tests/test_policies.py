"""Training policies: speeds in the summary, rematerialisation, optimisers, schedules."""

import math
import time

import jax
import numpy as np
import pytest

import jddl
from jddl import throughput

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
