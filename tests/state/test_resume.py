"""State survives: kills, other meshes, not finite values, a step that hangs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jddl
from jddl import checkpoints
from jddl.guard import NotFiniteError

HERE = Path(__file__).parent
BASE = {
    "task": "least_squares", "model": "mlp(hidden=4)", "mesh": "data=4", "runtime": "vmap",
    "batch_size": 24, "steps": 12, "log_every": 3, "save_every": 4,
    "aggregator": "error_feedback(topk(ratio=0.1))",
}  # fmt: skip


def run_python(*argv, **env):
    return subprocess.run(
        [sys.executable, *map(str, argv)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | env,
    )


def test_twenty_kills_leave_no_trace(tmp_path):
    done = run_python("-W", "ignore", HERE / "killed.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    found = re.search(r"kills 20, while saving (\d+), same True", done.stdout)
    assert found and int(found[1]) > 0, done.stdout  # some hit a half-written checkpoint


def test_a_run_goes_on_from_its_last_checkpoint(tmp_path):
    """Cut after step 8 by hand: the rest is trained again, and only the rest."""
    whole = jddl.train(BASE, tmp_path / "whole")
    jddl.train(BASE, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    last = tmp_path / "cut" / "checkpoints" / "12"
    last.rename(tmp_path / "gone")
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"half a li')
    seen = []
    again = jddl.train(BASE, tmp_path / "cut", progress=lambda row: seen.append(row["step"]))
    assert seen == [9, 12] and again.summary["final_loss"] == whole.summary["final_loss"]
    a, b = ((tmp_path / x / "metrics.jsonl").read_bytes() for x in ("whole", "cut"))
    assert a == b
    for x, y in zip(jax.tree.leaves(whole.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(x, y)


def test_keep_last_and_whole_state(tmp_path):
    jddl.train(BASE | {"keep_last": 2}, tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run") == [8, 12]
    saved = checkpoints.load(tmp_path / "run")
    memory = [n for n in saved.leaves if "memory" in n]
    assert saved.step == 12 and memory and saved.leaves[memory[0]].shape == (4, 61)
    assert any("trace" in n for n in saved.leaves) and any(".step" in n for n in saved.leaves)


def test_natural_leaves_load_under_another_mesh_and_memories_keep_their_mean(tmp_path):
    jddl.train(BASE, tmp_path / "four")
    saved = checkpoints.load(tmp_path / "four")
    two = jddl.validate(BASE | {"mesh": "data=2"})
    from jddl.loop import start
    from jddl.trees import leaf_names

    state, step = start(two, saved)
    found = dict(zip(leaf_names(state), jax.tree.leaves(state), strict=True))
    assert step == 12
    for name, leaf in found.items():
        if "memory" in name:
            old = saved.leaves[name]
            assert leaf.shape == (2, 61) and np.abs(old - old[:1]).max() > 0
            np.testing.assert_allclose(leaf[0], old.mean(0), atol=1e-7)
            np.testing.assert_allclose(leaf[1], old.mean(0), atol=1e-7)
        else:
            np.testing.assert_array_equal(leaf, saved.leaves[name])
    longer = BASE | {"mesh": "data=2", "steps": 20}
    result = jddl.train(longer, tmp_path / "two", resume_from=tmp_path / "four")
    assert [row["step"] for row in result.history[:-1]] == [15, 18, 20]


def test_a_leaf_without_a_rule_refuses_in_one_line(tmp_path):
    shelf = tmp_path / "shelf" / "aggregators"
    shelf.mkdir(parents=True)
    (shelf / "counting.py").write_text(COUNTING)
    jddl.catalog.add_shelf(tmp_path / "shelf")
    try:
        config = BASE | {"aggregator": "counting"}
        jddl.train(config, tmp_path / "a")
        with pytest.raises(ValueError, match=r"each worker's own, data=4 became data=2.*no rule"):
            jddl.train(
                config | {"mesh": "data=2", "steps": 20}, tmp_path / "b", resume_from=tmp_path / "a"
            )
    finally:
        jddl.catalog.remove_shelf(tmp_path / "shelf")


COUNTING = '''
"""The mean, and a number of each worker's own."""
import jax.numpy as jnp, optax
from jax import lax
from jddl.aggregators.mean import mean
from jddl.trees import Local

def counting(axis="data"):
    """Mean."""
    inner = mean(axis)
    init = lambda params: Local(jnp.zeros(1))
    def update(g, state, params=None, **extra):
        g, _ = inner.update(g, (), params)
        return g, Local(state.value + lax.axis_index(axis))
    return optax.GradientTransformationExtraArgs(init, update)
'''


def test_other_checkpoints_are_refused(tmp_path):
    jddl.train(BASE, tmp_path / "a")
    with pytest.raises(ValueError, match="nothing to train"):
        jddl.train(BASE | {"seed": 1}, tmp_path / "b", resume_from=tmp_path / "a")
    longer = BASE | {"steps": 20}
    with pytest.raises(ValueError, match=r"leaf .* is float32\[4\]"):
        jddl.train(longer | {"model": "mlp(hidden=5)"}, tmp_path / "b", resume_from=tmp_path / "a")
    with pytest.raises(ValueError, match="holds no checkpoint"):
        jddl.train(longer, tmp_path / "b", resume_from=tmp_path / "nothing")
    assert not (tmp_path / "b").exists()


POISONED = BASE | {"task": "hanging.poisoned", "optimizer": "sgd(learning_rate=0.05)"}


def test_not_finite_stops_with_step_leaf_and_checkpoint(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    with pytest.raises(ValueError, match=r"after step 5, first in .*\['.*'\].*that of step 4"):
        jddl.train(POISONED, tmp_path / "run", allow_import=("hanging",))


@pytest.mark.parametrize("aggregator", ["mean", "error_feedback(topk(ratio=0.1))"])
def test_not_finite_is_skipped_alike_on_all_workers(aggregator, tmp_path, monkeypatch):
    """Skipping step 5 equals a run whose learning rate is 0 at that step, without memory's change."""
    monkeypatch.syspath_prepend(HERE)
    config = POISONED | {"on_nonfinite": "skip", "aggregator": aggregator, "log_every": 1}
    result = jddl.train(config, allow_import=("hanging",))
    losses = [row["loss"] for row in result.history[:-1]]
    assert not np.isfinite(losses[4]) and np.isfinite(losses[5:]).all() and len(losses) == 12
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.params))
    plain = jddl.train(config | {"task": "least_squares", "steps": 4})
    five = jddl.train(config | {"steps": 5}, allow_import=("hanging",))
    for x, y in zip(jax.tree.leaves(plain.params), jax.tree.leaves(five.params), strict=True):
        np.testing.assert_array_equal(x, y)  # step 5 changed nothing


def test_not_finite_after_the_last_step_is_no_success(tmp_path):
    """The only loss, taken before the update, is finite; the parameters after it are not."""
    config = BASE | {"optimizer": "sgd(learning_rate=3e38)", "steps": 1, "save_every": 0}
    config |= {"aggregator": "mean"}
    with pytest.raises(NotFiniteError, match=r"after step 1, first in .*\['.*'\]"):
        jddl.train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    skipped = jddl.train(config | {"on_nonfinite": "skip"})
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(skipped.params))


@pytest.mark.parametrize("step", [1, 4])
def test_a_step_that_hangs_ends_with_stacks_and_collectives(step):
    task = f"hanging.hanging(step={step})"
    config = BASE | {"task": task, "step_timeout": 2.0, "save_every": 0}
    code = f"import jddl; jddl.train({config!r}, allow_import=('hanging',))"
    path = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    done = run_python("-c", code, PYTHONPATH=path)
    assert done.returncode == 3
    assert f"step {step} has not finished in 2 s" in done.stderr
    assert "hanging.py" in done.stderr and "Thread" in done.stderr  # where it hangs
    assert "collectives in order" in done.stderr and "all_gather" in done.stderr


def test_wrong_settings_are_one_line():
    for change, words in (
        ({"on_nonfinite": "ignore"}, "stop, skip"),
        ({"keep_last": 0}, "keep_last is at least 1"),
        ({"save_every": -1}, "not negative"),
    ):
        with pytest.raises(ValueError, match=words):
            jddl.validate(BASE | change)
