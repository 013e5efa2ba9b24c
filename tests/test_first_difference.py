"""Where two runs part: runs that differ from a known step and leaf on."""

import json
import math
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import jddl
from jddl.experiment import complete
from jddl.studies._bits import apart, ulps
from jddl.studies.first_difference import first_difference, forward_names, row_difference

BASE = {
    "task": "least_squares", "model": "mlp(hidden=4)", "mesh": "data=4", "runtime": "vmap",
    "batch_size": 24, "steps": 8, "log_every": 2,
}  # fmt: skip

LATE = '''
"""The mean; after some steps 1e-3 is added to one leaf's gradient, or to worker 2's memory."""
import jax.numpy as jnp, optax
from jax import lax
from jddl.aggregators.mean import mean
from jddl.trees import Local

def late(after: int, what: str = "bias", axis: str = "data"):
    """Mean."""
    inner = mean(axis)
    def init(params):
        return jnp.zeros((), jnp.int32), Local(jnp.zeros(3))
    def update(g, state, params=None, **extra):
        count, memory = state
        g, _ = inner.update(g, (), params)
        more = jnp.where(count >= after, 1e-3, 0.0)
        if what == "bias":
            linear = g["shared"]["head"]["linear"]
            linear["bias"] = linear["bias"] + more
        else:
            memory = Local(memory.value + more * (lax.axis_index(axis) == 2))
        return g, (count + 1, memory)
    return optax.GradientTransformationExtraArgs(init, update)
'''


def folder(path, **changes):
    """A run's folder as a killed run leaves it: nothing but its config."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(dict(complete(BASE | {"steps": 2} | changes))))
    return path


@pytest.fixture(scope="module")
def late_runs(tmp_path_factory):
    """Runs of `late.late`, which a config.json may only name with the package allowed."""
    root = tmp_path_factory.mktemp("late")
    (root / "late.py").write_text(LATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root))
        for name, spec in (("never", "after=99"), ("bias", "after=4")):
            jddl.train(BASE | {"aggregator": f"late.late({spec})"}, root / name, ("late",))
        yield root


def test_the_step_and_the_leaf_are_named(late_runs):
    found = first_difference(late_runs / "never", late_runs / "bias", ("late",))
    assert found.config == {"aggregator": ("late.late(after=99)", "late.late(after=4)")}
    assert found.compared == "state" and found.steps == 8
    assert (found.leaf.step, found.leaf.name) == (5, ".params['shared']['head']['linear']['bias']")
    assert abs(found.leaf.largest - 1e-4) < 1e-6  # 1e-3 times the learning rate
    assert found.leaf.others == 1  # its momentum
    assert found.recorded.step == 6 and set(found.recorded.values) == {"loss"}
    assert found.replayed == ((4, None), (4, None))


def test_a_memory_of_one_worker_is_compared_too(late_runs):
    """The parameters stay equal: only the whole state tells."""
    one, two = (
        folder(late_runs / f"memory{n}", steps=7, aggregator=f"late.late(after={n}, what='memory')")
        for n in (99, 5)
    )
    found = first_difference(one, two, ("late",))
    assert found.compared == "state" and found.leaf.step == 6 and found.leaf.others == 0
    assert found.leaf.name.startswith(".opt") and np.float32(found.leaf.largest) == np.float32(1e-3)


def test_equal_runs_do_not_part_and_a_row_that_was_not_computed_here_is_named(tmp_path):
    jddl.train(BASE, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | {"loss": 7.0})
    (tmp_path / "b" / "metrics.jsonl").write_text("\n".join(lines))
    found = first_difference(tmp_path / "a", tmp_path / "b")
    assert found.leaf is None and found.config == {} and found.steps == 8
    assert found.replayed[0] == (4, None)
    rows, wrong = found.replayed[1]
    assert rows == 4 and wrong.step == 4 and wrong.values["loss"][0] == 7.0
    assert found.recorded.step == 4 and found.recorded.values["loss"][1] == 7.0


def test_runs_of_other_shapes_are_compared_as_far_as_they_go(tmp_path):
    one = folder(tmp_path / "one")
    seeded = first_difference(one, folder(tmp_path / "seed", seed=1))
    assert seeded.leaf.step == 0  # as initialised, and in the first layer, not the first by name
    assert seeded.leaf.name == ".params['shared']['embed']['linear']['kernel']"
    assert seeded.replayed == ((0, None), (0, None))
    other = first_difference(one, folder(tmp_path / "opt", optimizer="adam(learning_rate=0.1)"))
    assert other.compared == "params" and other.leaf.step == 1
    assert other.leaf.name == "['shared']['embed']['linear']['kernel']"
    wide = first_difference(one, folder(tmp_path / "wide", model="mlp(hidden=5)"))
    assert wide.compared == "nothing" and wide.leaf is None


def test_leaves_stand_in_the_order_of_the_forward_pass():
    experiment = jddl.validate(BASE | {"model": "mlp(hidden=4, layers=2)"})
    params, stats = experiment.model.init(jddl.trees.as_key(np.zeros(2, np.uint32)))
    layers = ["['shared']['embed']", "['blocks'][0]", "['blocks'][1]", "['shared']['head']"]
    expected = [f"{layer}['linear'][{x!r}]" for layer in layers for x in ("kernel", "bias")]
    assert forward_names(experiment, params, stats) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, jnp.bfloat16])
def test_ulps_count_the_steps_to_the_neighbour(dtype):
    for start in (1.0, -1.0, 1e-3, 0.0):
        for count in (0, 1, 5):
            x = y = np.array([start], dtype)
            for _ in range(count):
                y = np.nextafter(y, np.array([4.0], dtype))
            assert ulps(x, y) == ulps(y, x) == count
    zero = np.zeros(1, dtype)
    assert ulps(-zero, zero) == 1
    assert ulps(np.zeros((0, 3), dtype), np.zeros((0, 3), dtype)) == 0


def test_ulps_over_zero_and_of_integers():
    tiny = np.array([np.finfo(np.float32).smallest_subnormal])
    assert ulps(-tiny, tiny) == 3  # -tiny, -0, 0, tiny
    assert ulps(np.array([1, 2]), np.array([1, 3])) is None


def test_bits_tell_signed_zeros_apart_and_nan_equal():
    nan, zero = np.array([np.nan, np.inf], np.float32), np.zeros(2, np.float32)
    assert apart(1, {"a": nan, "b": zero}, {"a": nan.copy(), "b": zero}, []) is None
    found = apart(1, {"a": zero, "b": nan}, {"a": -zero, "b": -nan}, ["['b']", "['a']"])
    assert found.name == "['b']" and math.isnan(found.largest) and found.others == 1
    assert row_difference(3, {"loss": math.nan}, {"loss": float("nan")}) is None
    assert row_difference(3, {"loss": 1.0, "x": 1}, {"loss": 1.5}).values == {"loss": (1.0, 1.5)}


def test_the_command_line(late_runs, capsys, tmp_path):
    from jddl.cli import main

    def run(*args):
        with pytest.raises(SystemExit) as done:
            main(["compare", "--first-difference", *map(str, args)])
        return done.value.code or 0, capsys.readouterr()

    runs = late_runs / "never", late_runs / "bias"
    code, text = run(*runs, "--allow_import=late")
    lines = text.out.splitlines()
    assert code == 0 and lines[0] == "aggregator: 'late.late(after=99)' | 'late.late(after=4)'"
    assert lines[1].startswith("recorded metrics: part at step 6, loss ")
    assert "after step 5, leaf .params['shared']['head']['linear']['bias']: 0.0001" in lines[2]
    assert "ulps; 1 more leaf differs (whole states" in lines[2] and len(lines) == 3
    for args, words in (
        (runs, "--allow_import=late"),
        (runs[:1], "compares two runs, not 1"),
        ((tmp_path, runs[0]), "holds no run"),
    ):
        code, text = run(*args)
        assert code == 2 and words in text.err and text.err.count("\n") == 1
    a, b = folder(tmp_path / "a"), folder(tmp_path / "b")
    (a / "metrics.jsonl").write_text('{"step": 1, "lo\n{"step": 2, "loss": 1.0}\n')
    code, text = run(a, b)
    assert code == 2 and "metrics.jsonl is damaged at line 1" in text.err
    (a / "metrics.jsonl").write_text('{"step": 2, "lo')  # killed while it wrote
    found = json.loads(run(a, b, "--json")[1].out)
    assert found["leaf"] is None and found["replayed"] == [[0, None], [0, None]]
    lines = run(a, b)[1].out.splitlines()
    assert lines[0] == "the configs are equal"
    assert lines[-1] == "no difference in 2 steps (whole states, bit for bit)"
    assert sum("no recorded metrics" in line for line in lines) == 2
