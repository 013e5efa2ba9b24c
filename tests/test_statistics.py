"""Paired differences, tuning on validation, and where two runs part."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import jddl
from jddl.experiment import complete
from jddl.report import tables
from jddl.runs import Run
from jddl.studies.first_difference import first_difference
from jddl.studies.tune import parse_grid, pick, tune

BASE = {
    "task": "least_squares", "model": "mlp(hidden=4)", "mesh": "data=4", "runtime": "vmap",
    "batch_size": 24, "steps": 8, "log_every": 2,
}  # fmt: skip


def runs(values, name="test_accuracy"):
    return [Run(Path(), {}, {"seed": i, name: v}, []) for i, v in enumerate(values)]


def test_paired_differences_against_scipy():
    """The t interval of the differences, as scipy gives it; pairing, not two intervals."""
    one, two = [0.90, 0.95, 0.70], [0.91, 0.965, 0.705]
    rows = [{"variant": "a"}, {"variant": "b"}]
    tables.add_differences(rows, [runs(one), runs(two)])
    apart = np.subtract(two, one)
    low, high = stats.t.interval(0.95, 2, loc=apart.mean(), scale=stats.sem(apart))
    assert math.isclose(rows[1]["difference"], apart.mean())
    assert math.isclose(rows[1]["difference_ci"], (high - low) / 2)
    assert rows[1]["difference_ci"] < tables.half_width(one) / 10
    assert "difference" not in rows[0]
    assert "+0.0100 ±0.0124" in tables.render(rows)


def test_differences_pair_by_seed_and_take_the_loss_where_there_is_no_accuracy():
    first, second = runs([1.0, 2.0, 4.0], "test_loss"), runs([1.5, 2.5, 4.5], "test_loss")[::-1]
    rows = [{"variant": "a"}, {"variant": "b"}]
    tables.add_differences(rows, [first, second])
    assert rows[1]["difference"] == 0.5 and rows[1]["difference_ci"] == 0
    alone = [{"variant": "a"}, {"variant": "b"}]
    tables.add_differences(alone, [first[:1], second[:1]])
    assert "difference" not in alone[1]  # one seed: no interval, no difference


def test_picking_looks_at_validation_only():
    """The second point is best on validation, the first on test."""
    point = lambda v, t: [{"validation_accuracy": v, "test_accuracy": t}]  # noqa: E731
    assert pick([point(0.90, 0.99), point(0.95, 0.50), point(0.94, 0.60)]) == 1
    assert pick([[{"validation_loss": 0.2}], [{"validation_loss": 0.1}]]) == 1
    assert pick([[], [{"validation_loss": 9.0}]]) == 1  # the first diverged
    assert pick([[], []]) is None
    two = [{"validation_accuracy": 0.9}, {"validation_accuracy": 0.5}]
    assert pick([two, [{"validation_accuracy": 0.8}, {"validation_accuracy": 0.8}]]) == 1


def test_tuning_finds_the_rate_that_does_not_diverge(tmp_path):
    config = complete(BASE | {"model": "linear", "steps": 40, "log_every": 40})
    grid = parse_grid("optimizer.learning_rate:1e-5,0.05,5000.0")
    (found,) = tune(config, [{}], [grid], [0, 1], tmp_path)
    assert found.chosen == "learning_rate=0.05" and not found.warning
    assert len(found.cell.runs) == 2
    assert "learning_rate=0.05" in found.cell.runs[0].config["optimizer"]
    assert "momentum=0.9" in found.cell.runs[0].config["optimizer"]
    (edge,) = tune(config, [{}], [parse_grid("batch_size:24,48")], [0], tmp_path)
    assert "edge of its grid" in edge.warning and edge.chosen.startswith("batch_size=")


def test_wrong_grids_are_one_line():
    for text, words in (
        ("optimizer.learning_rate", "write it as"),
        ("optimiser.learning_rate:1", "optimizer"),
        ("optimizer:1,2", "optimizer.ARGUMENT"),
        ("batch_size.x:1", "batch_size:"),
        ("batch_size:1,,2", "write it as"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_grid(text)


LATE = '''
"""The mean, with 1e-3 added to one leaf's gradient after some steps."""
import jax.numpy as jnp, optax
from jddl.aggregators.mean import mean

def late(after: int, axis: str = "data"):
    """Mean."""
    inner = mean(axis)
    def update(g, state, params=None, **extra):
        g, _ = inner.update(g, (), params)
        linear = g["shared"]["head"]["linear"]
        linear["bias"] = linear["bias"] + jnp.where(state >= after, 1e-3, 0.0)
        return g, state + 1
    return optax.GradientTransformationExtraArgs(lambda p: jnp.zeros((), jnp.int32), update)
'''


def test_the_first_difference_is_named(tmp_path):
    shelf = tmp_path / "shelf" / "aggregators"
    shelf.mkdir(parents=True)
    (shelf / "late.py").write_text(LATE)
    jddl.catalog.add_shelf(tmp_path / "shelf")
    try:
        jddl.train(BASE | {"aggregator": "late(after=99)"}, tmp_path / "a")
        jddl.train(BASE | {"aggregator": "late(after=4)"}, tmp_path / "b")
        jddl.train(BASE | {"mesh": "data=2"}, tmp_path / "c")
        found = first_difference(tmp_path / "a", tmp_path / "b")
        assert found.config == {"aggregator": ("late(after=99)", "late(after=4)")}
        assert (found.step, found.leaf) == (5, ".params['shared']['head']['linear']['bias']")
        assert abs(found.size - 1e-4) < 1e-5  # learning rate 0.1
        assert found.row == 6 and found.reproduced == (True, True) and found.compared == "state"
        same = first_difference(tmp_path / "a", tmp_path / "a")
        assert same.step is None and same.row is None and same.steps == 8
        other = first_difference(tmp_path / "a", tmp_path / "c")
        assert other.compared == "params" and other.reproduced == (True, True)
    finally:
        jddl.catalog.remove_shelf(tmp_path / "shelf")
    jddl.train(BASE, tmp_path / "d")
    lines = (tmp_path / "d" / "metrics.jsonl").read_text().splitlines()
    edited = [json.dumps(json.loads(lines[0]) | {"loss": 7.0}, sort_keys=True), *lines[1:]]
    (tmp_path / "d" / "metrics.jsonl").write_text("\n".join(edited) + "\n")
    assert first_difference(tmp_path / "d", tmp_path / "c").reproduced == (False, True)
