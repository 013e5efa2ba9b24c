"""Training policies: speeds in the summary, rematerialisation, optimisers, schedules."""

import math
import time

import jax
import numpy as np
import pytest

import jddl
from jddl import assembly, catalog, components, throughput
from jddl.cli import main
from jddl.experiment import batch_shapes, complete
from jddl.loop import traffic
from jddl.records import Context, Model
from jddl.remat import rematerialised
from jddl.runs import read_run
from jddl.studies._grid import changed_to, parse_grid
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


# --- optimisers and schedules ------------------------------------------------------------------

OPTIMIZERS = [
    "adafactor(learning_rate=0.03)", "adamw(learning_rate=0.003)", "lamb(learning_rate=0.02)",
    "lars(learning_rate=10.0)", "lion(learning_rate=0.003)", "muon(learning_rate=0.02)",
    "sgd(learning_rate=scaled(base_batch=20, rate=0.05, warmup=10))",
]  # fmt: skip
RNG = np.random.default_rng(0)
W, G = ({"a": RNG.standard_normal((3, 4)), "b": RNG.standard_normal(4)} for _ in range(2))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_trains_digits(optimizer):
    config = {"mesh": "data=1", "runtime": "vmap", "batch_size": 60, "model": "mlp(hidden=16)"}
    history = jddl.train(config | {"optimizer": optimizer, "steps": 30}).history
    losses = [row["loss"] for row in history if "loss" in row]
    assert losses[0] > losses[1] > losses[2] and losses[2] < 2.1


def first_update(text):
    transform = catalog.make("optimizers", text)
    return transform.update(G, transform.init(W), W)[0]


def lion(w, g):
    """Chen et al. 2023, algorithm 2: the sign of (1 - b1) g, decoupled weight decay."""
    return -0.01 * (np.sign(0.1 * g) + 0.3 * w)


def lamb(w, g):
    """You et al. 2020, algorithm 2, phi the identity: corrected moments are g and g^2."""
    m, v = 0.1 * g / (1 - 0.9), 0.001 * g * g / (1 - 0.999)
    step = m / (np.sqrt(v) + 1e-6) + 0.3 * w
    return -0.01 * np.linalg.norm(w) / np.linalg.norm(step) * step


def lars(w, g):
    """You et al. 2017, algorithm 1 without weight decay (with it, optax takes |g + beta w|)."""
    return -10.0 * 0.001 * np.linalg.norm(w) / np.linalg.norm(g) * g


@pytest.mark.parametrize(("text", "by_hand"), [
    ("lion(learning_rate=0.01, weight_decay=0.3)", lion),
    ("lamb(learning_rate=0.01, weight_decay=0.3)", lamb),
    ("lars(learning_rate=10.0)", lars),
])  # fmt: skip
def test_a_first_update_is_the_papers(text, by_hand):
    with jax.enable_x64(True):
        found = first_update(text)
    for name in W:
        np.testing.assert_allclose(found[name], by_hand(W[name], G[name]), rtol=1e-6)


def test_muon_moves_a_matrix_by_an_orthogonal_one():
    """Jordan et al. 2024: all singular values of an update are near each other (0.7 to 1.2)."""
    singular = np.linalg.svd(np.asarray(first_update("muon(learning_rate=1.0)")["a"]))[1]
    assert singular.max() / singular.min() < 1.8 < np.divide(*np.linalg.svd(G["a"])[1][[0, -1]])


def rate_of(text, batch_size=240):
    return catalog.make("schedules", text, {"batch_size": batch_size})


def test_a_rate_is_scaled_with_the_batch():
    """Goyal et al. 2017: 0.1 at a batch of 256 becomes 3.2 at 8192, from 0.1 on by equal steps."""
    linear = rate_of("scaled(rate=0.1, base_batch=256, warmup=5)", 8192)
    np.testing.assert_allclose([linear(t) for t in (0, 1, 4, 5, 99)],
                               [0.1, 0.72, 2.58, 3.2, 3.2], rtol=1e-6)  # fmt: skip
    root = rate_of("scaled(rate=0.1, base_batch=128, rule='sqrt')", 8192)
    np.testing.assert_allclose([root(0), root(7)], 0.8, rtol=1e-6)
    falling = "cosine_decay_schedule(init_value=0.1, decay_steps=100)"
    whole = rate_of(f"scaled(base_batch=60, rate={falling})")
    np.testing.assert_allclose(whole(30), 4 * rate_of(falling)(30), rtol=1e-6)
    small = rate_of("scaled(rate=0.1, base_batch=480, warmup=2)")
    np.testing.assert_allclose([small(t) for t in (0, 1, 2)], [0.1, 0.075, 0.05], rtol=1e-6)


@pytest.mark.parametrize(("text", "words"), [
    ("scaled(rate=0.1, base_batch=60, rule='log')", "rule is one of linear, sqrt, not 'log'"),
    ("scaled(rate=0.1, base_batch=0)", "base_batch is at least 1"),
    ("scaled(rate=0.1)", "scaled needs the argument 'base_batch'"),
    ("scaled(rate=0.1, base_batch=60, batch_size=61)", "batch_size is 240 in this run"),
    ("scaled(rate=mean, base_batch=60)", "here one of schedules is wanted"),
    ("cosine_decay", "did you mean 'cosine_decay_schedule'"),
])  # fmt: skip
def test_a_wrong_schedule_is_named(text, words):
    with pytest.raises(ValueError) as error:
        rate_of(text)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_the_shelf_of_schedules_holds_optaxs_and_ours(tmp_path):
    assert {"scaled", "warmup_cosine_decay_schedule"} <= set(catalog.names("schedules"))
    assert {"muon", "lars", "lamb", "lion", "adafactor", "adamw"} <= set(
        catalog.names("optimizers")
    )
    for example in catalog.examples("schedules"):
        assert 0 < float(rate_of(example)(3)) < 1
    stub = components.PACKAGE / "schedules" / "__init__.pyi"
    assert stub.read_text() == catalog.stub("schedules")
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "flat.py").write_text(
        "def flat(rate: float):\n    return lambda t: rate"
    )
    catalog.add_shelf(tmp_path)
    try:
        assert catalog.make("schedules", "flat(rate=0.5)")(3) == 0.5
    finally:
        catalog.remove_shelf(tmp_path)


def test_a_schedule_is_as_wide_as_the_run():
    """In float64 it is the formula to 1e-15, counted in int32 or not: `verify` compares so far."""
    with jax.enable_x64(True):
        schedule = rate_of("cosine_decay_schedule(decay_steps=7, init_value=0.1)")
        found = float(schedule(np.int32(3)))
    assert abs(found - 0.05 * (1 + math.cos(3 * math.pi / 7))) < 1e-15


def test_a_schedule_goes_through_the_command_line(tmp_path):
    """At rate 0 nothing moves; the first step of a warm-up from 0 is such a step."""
    schedule = "warmup_cosine_decay_schedule(init_value=0.0, peak_value=0.1, warmup_steps=2, decay_steps=9)"
    flags = ["--config=configs/least_squares.py", "--config.runtime=vmap", "--config.steps=3",
             "--config.log_every=1", f"--workdir={tmp_path / 'run'}"]  # fmt: skip
    with pytest.raises(SystemExit) as done:
        main(["train", *flags, f"--config.optimizer=sgd(learning_rate={schedule})"])
    assert not done.value.code
    again = jddl.train(read_run(tmp_path / "run").config | {"optimizer": "sgd(learning_rate=0.0)"})
    losses, still = ([r["loss"] for r in rows if "loss" in r]
                     for rows in (read_run(tmp_path / "run").metrics, again.history))  # fmt: skip
    assert losses[:2] == still[:2] and losses[2] != still[2]


def test_a_scaled_rate_is_verified_and_tuned():
    rate = "sgd(learning_rate=scaled(rate=0.02, base_batch=12, warmup=2))"
    config = {"task": "least_squares", "model": "linear", "mesh": "data=2", "batch_size": 24,
              "optimizer": rate}  # fmt: skip
    assert {row.verdict for row in jddl.verify(config, steps=2).rows} <= {
        "exact",
        "summation order",
    }
    grid = parse_grid("optimizer.learning_rate.rate:0.01,0.02")
    changed = changed_to(complete(config), {}, [grid], [0.01])["optimizer"]
    assert "rate=0.01" in changed and "warmup=2" in changed
