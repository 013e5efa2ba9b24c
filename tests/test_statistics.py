"""Paired differences, a validation split of its own, tuning on it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from jddl import catalog
from jddl.experiment import complete
from jddl.report import page, tables
from jddl.runs import Run
from jddl.studies import compare
from jddl.studies._grid import changed_to, edge_warning, parse_grid, parse_grids
from jddl.studies.tune import pick, tune, validation


def runs(values, name="test_accuracy"):
    return [Run(Path(), {}, {"seed": i, name: v}, []) for i, v in enumerate(values)]


def differences(*variants):
    rows = [{"variant": "abc"[i]} for i in range(len(variants))]
    tables.add_differences(rows, variants)
    return rows


def test_paired_differences_by_hand_and_against_scipy():
    """Student's t with 2 degrees of freedom has its 97.5 % point at 4.30265."""
    one, two = [0.90, 0.95, 0.70], [0.91, 0.965, 0.705]
    first, second = differences(runs(one), runs(two))
    apart = np.array([0.01, 0.015, 0.005])
    half = 4.302652729911275 * apart.std(ddof=1) / math.sqrt(3)
    assert math.isclose(second["difference"], 0.01)
    assert math.isclose(second["difference_low"], 0.01 - half, rel_tol=1e-9)
    assert math.isclose(second["difference_high"], 0.01 + half, rel_tol=1e-9)
    assert math.isclose(second["difference_ci"], half, rel_tol=1e-9)
    low, high = stats.t.interval(0.95, 2, loc=apart.mean(), scale=stats.sem(apart))
    np.testing.assert_allclose(
        [second["difference_low"], second["difference_high"]], [low, high], rtol=1e-9
    )
    assert second["difference_ci"] < tables.half_width(one) / 10  # pairing, not two intervals
    assert "difference" not in first
    text = tables.render([first, second])
    assert "difference to a [low, high]" in text and "+0.0100 [-0.0024, +0.0224]" in text


def test_differences_pair_by_seed_and_take_the_loss_where_there_is_no_accuracy():
    first, second = runs([1.0, 2.0, 4.0], "test_loss"), runs([1.5, 2.5, 4.5], "test_loss")[::-1]
    row = differences(first, second)[1]
    assert row["difference"] == 0.5 and row["difference_low"] == row["difference_high"] == 0.5
    assert row["difference_of"] == "test_loss"
    assert "difference" not in differences(first[:1], second[:1])[1]  # one seed: no interval
    assert "difference" not in differences(first[:2], second[:1])[1]  # seeds 0, 1 and seed 2
    rows = differences([], first, second)  # the first variant could not run
    assert "difference" not in rows[1] and rows[2]["difference_to"] == "b"
    assert differences([], []) == [{"variant": "a"}, {"variant": "b"}]


def test_the_table_and_the_page_show_what_was_tuned_and_a_loss_only_without_accuracy(tmp_path):
    summary = {
        "seed": 0, "test_loss": 0.25, "validation_loss": 0.5, "cluster": "c",
        "sent_bytes": 1, "modelled_step_seconds": 1e-3,
    }  # fmt: skip
    run = Run(Path(), {"seed": 0}, summary, [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}])
    row = tables.row("v", [run])
    assert {"test_loss"} == {c for c in tables.columns([row]) if "test" in c or "validation" in c}
    row |= {"tuned": {"optimizer.learning_rate": "0.3"}, "warning": "v: at the edge"}
    shown = tables.columns([row])
    assert {"tuned", "validation_loss", "test_loss"} <= shown.keys()
    right = tables.columns([row | {"test_accuracy": 0.9, "validation_accuracy": 0.9}])
    assert "test_loss" not in right and "validation_loss" not in right
    assert "optimizer.learning_rate=0.3" in tables.render([row])
    assert tables.notes([row]) == ["v: at the edge"]
    page.write_page(tmp_path / "page.html", [row], [("v", run)])
    text = (tmp_path / "page.html").read_text()
    assert "v: at the edge" in text and "optimizer.learning_rate=0.3" in text


def test_digits_splits_are_a_partition_of_the_data():
    from sklearn.datasets import load_digits

    task = catalog.make("tasks", "digits", {"batch_size": 1257})
    parts = {s: task.batch(0, s, 0) for s in ("train", "validation", "test")}
    assert [len(b["labels"]) for b in parts.values()] == [1257, 180, 360]
    rows = [(*x.ravel(), y) for b in parts.values() for x, y in zip(b["inputs"], b["labels"])]
    data = load_digits()
    assert sorted(rows) == sorted((*x, y) for x, y in zip(data.data / 16, data.target))
    assert len({row[:-1] for row in rows}) == len(rows)  # no image twice: no split shares one


def test_least_squares_splits_share_no_example():
    task = catalog.make("tasks", "least_squares", {"batch_size": 4096})
    seen = [
        tuple(x) for s in ("train", "validation", "test") for x in task.batch(0, s, 0)["inputs"]
    ]
    assert len(set(seen)) == len(seen) == 4096 + 512 + 512


class Sealed(dict):
    """A summary whose test values may not be looked at."""

    def __getitem__(self, name):
        assert not name.startswith("test"), name
        return super().__getitem__(name)


def test_picking_looks_at_validation_only():
    """The second point is best on validation, the first on test."""
    point = lambda v, t: [Sealed(validation_accuracy=v, test_accuracy=t, test_loss=1 - t)]  # noqa: E731
    tried = [point(0.90, 0.99), point(0.95, 0.50), point(0.94, 0.60)]
    assert pick([validation(p) for p in tried]) == 1
    assert max(range(3), key=lambda i: dict.get(tried[i][0], "test_accuracy")) == 0


def test_picking_takes_means_over_seeds_the_loss_where_no_accuracy_is_and_breaks_ties_by_it():
    a, loss = "validation_accuracy", "validation_loss"
    seeds = [[{a: 0.9, loss: 1}, {a: 0.5, loss: 1}], [{a: 0.8, loss: 1}, {a: 0.7, loss: 1}]]
    assert validation(seeds[0]) == {a: 0.7, loss: 1.0}
    assert pick([validation(s) for s in seeds]) == 1
    assert pick([{loss: 0.2}, {loss: 0.1}, {loss: math.nan}]) == 1
    assert pick([{a: 0.9, loss: 0.3}, {a: 0.9, loss: 0.2}, {a: 0.8, loss: 0.1}]) == 1
    assert pick([{a: 0.9, loss: 0.2}, {a: 0.9, loss: 0.2}]) == 0
    assert pick([validation([]), {loss: 9.0}]) == 1  # the first diverged
    assert pick([{}, {loss: math.inf}]) is None


def test_tuning_picks_for_each_variant_and_resumes_also_what_diverged(tmp_path, monkeypatch):
    """On (1/2)|w - w*|^2 a rate of 30 multiplies the error by about 29 a step: it diverges. With
    gradients clipped to 0.01 it moves by 0.3 a step, where 0.3 could move by 0.06 in 20 steps.
    """
    config = complete({
        "task": "least_squares", "model": "linear", "mesh": "data=2", "runtime": "vmap",
        "batch_size": 64, "steps": 20, "log_every": 5, "optimizer": "sgd(learning_rate=7.0)",
    })  # fmt: skip
    variants = [{"clip_norm": "0.0"}, {"clip_norm": "0.01"}]
    grids = parse_grids(["optimizer.learning_rate:30, 0.3"])
    plain, clipped = tune(config, variants, grids, [0, 1], tmp_path)
    assert plain.chosen == {"optimizer.learning_rate": "0.3"}
    assert clipped.chosen == {"optimizer.learning_rate": "30"}
    assert "not finite" in plain.points[0]["reason"] and "validation_loss" in plain.points[1]
    assert [len(t.cell.runs) for t in (plain, clipped)] == [2, 2]
    assert plain.cell.label == "clip_norm=0.0"
    losses = {t.cell.label: t.points[1]["validation_loss"] for t in (plain, clipped)}
    assert losses["clip_norm=0.0"] < 0.01 < 0.1 < losses["clip_norm=0.01"]
    assert "edge" in plain.warning  # both ends of a grid of two are edges

    monkeypatch.setattr(compare, "train", lambda *a: pytest.fail("trained again"))
    again = tune(config, variants, grids, [0, 1], tmp_path)
    assert [t.chosen for t in again] == [plain.chosen, clipped.chosen]
    grids = parse_grids(["optimizer.learning_rate:30"])
    (none,) = tune(config, variants[:1], grids, [0, 1], tmp_path)
    assert none.cell.runs == () and "no point of the grid" in none.cell.reason


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("optimizer.learning_rate:0.3", "sgd(learning_rate=0.1, momentum=0.9)",
         "sgd(learning_rate=0.3, momentum=0.9)"),
        ("optimizer.momentum:0.5", "sgd(learning_rate=0.1)",
         "sgd(learning_rate=0.1, momentum=0.5)"),
        ("aggregator.compressor.ratio:0.2", "error_feedback(topk(ratio=0.01))",
         "error_feedback(topk(ratio=0.2))"),
        ("aggregator.compressor.ratio:0.2", "error_feedback(compressor=topk(ratio=0.01))",
         "error_feedback(topk(ratio=0.2))"),
        ("aggregator.compressor:topk(ratio=0.5)", "compressed(int8)",
         "compressed(topk(ratio=0.5))"),
        ("batch_size:60", "240", "60"),
        ("clip_norm:1", "0.0", "1.0"),
        ("on_nonfinite:skip", "stop", "skip"),
        ("mesh:'data=2'", "data=8", "data=2"),
    ],
)  # fmt: skip
def test_a_value_is_put_into_its_place(text, before, after):
    grid = parse_grid(text)
    config = {grid.field: before}
    (value,) = changed_to(config, {}, [grid], grid.values).values()
    shelf = {"optimizer": "optimizers", "aggregator": "aggregators"}.get(grid.field)
    assert (catalog.canonical(shelf, value) if shelf else value) == after


def test_values_are_separated_by_commas_outside_brackets_and_grids_by_semicolons():
    one, two = parse_grids(["aggregator.compressor:topk(ratio=0.1, k=3),int8 ; batch_size:60,120"])
    assert [str(v) for v in one.values] == ["topk(k=3, ratio=0.1)", "int8()"]
    assert two.values == (60, 120) and two.place == "batch_size"


def test_the_edge_is_the_smallest_or_largest_number_in_whatever_order():
    grid = parse_grid("optimizer.learning_rate:0.3,0.03,0.1")
    assert edge_warning("v", [grid], [0.1]) == ""
    assert "optimizer.learning_rate=0.03 of 0.03 to 0.3" in edge_warning("v", [grid], [0.03])
    words = parse_grid("on_nonfinite:stop,skip")
    assert edge_warning("v", [words], ["stop"]) == ""  # words have no order


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["optimizer.learning_rate"], "write it as"),
        (["optimizer.learning_rate:"], "write it as"),
        (["optimizer.:1"], "write it as"),
        (["optimiser.learning_rate:1"], "optimizer"),
        (["optimizer:1,2"], "optimizer.ARGUMENT"),
        (["batch_size.x:1"], "batch_size:"),
        (["batch_size:1,,2"], "write it as"),
        (["batch_size:60,many"], "batch_size is int, not many"),
        (["clip_norm:0.1,0.1"], "stands twice"),
        (["clip_norm:0.1,0.2", "clip_norm:0.3,0.4"], "tuned twice"),
        (["seed:0,1"], "--seeds"),
        (["task.noise:0.1,0.2"], "another validation split"),
    ],
)
def test_wrong_grids_are_one_line(texts, words):
    with pytest.raises(ValueError, match=words) as caught:
        parse_grids(texts)
    assert "\n" not in str(caught.value)


def test_a_place_that_is_not_there_or_swept_too_is_refused_before_training(tmp_path):
    config = complete({"runtime": "vmap"})
    for text, change, words in (
        ("optimizer.lr:0.1,0.2", {}, "no argument 'lr'"),
        (
            "aggregator.compressor.ratio:0.1,0.2",
            {"aggregator": "mean"},
            "no component 'compressor'",
        ),
        ("batch_size:60,120", {"batch_size": "240"}, "swept already"),
        ("batch_size:60,121", {}, "does not divide"),
    ):
        with pytest.raises(ValueError, match=words):
            tune(config, [change], [parse_grid(text)], [0], tmp_path)
    assert not list(tmp_path.iterdir())


def test_compare_tunes_from_the_command_line(tmp_path, capsys):
    from jddl.cli import main

    args = ["compare", "--config=configs/least_squares.py", "--config.steps=5", "--seeds=0,1",
            "--config.model=linear", "--sweep=clip_norm=0.0;0.01", f"--workdir={tmp_path}",
            "--tune=optimizer.learning_rate:0.01,0.3"]  # fmt: skip
    with pytest.raises(SystemExit) as done:
        main(args)
    text = capsys.readouterr().out
    assert not done.value.code and "difference to clip_norm=0.0 [low, high]" in text
    assert "optimizer.learning_rate=0.3" in text and "best at the edge" in text
    assert "difference: of test loss" in text and (tmp_path / "report.html").is_file()
    with pytest.raises(SystemExit):
        main([*args, "--json"])
    rows = json.loads(capsys.readouterr().out)
    values = np.array([
        [json.loads((p / "summary.json").read_text())["test_loss"] for p in sorted(tmp_path.iterdir())
         if f"clip_norm={c}_" in p.name and "=0.3" in p.name] for c in ("0.0", "0.01")
    ])  # fmt: skip
    low, high = stats.ttest_rel(values[1], values[0]).confidence_interval(0.95)
    np.testing.assert_allclose(
        [rows[1]["difference_low"], rows[1]["difference_high"]], [low, high], rtol=1e-9
    )
    for wrong, words in (
        ([*args[:-1], "--tune=optimizer.learning_rate=1"], "write it as"),
        ([*args[:-1], "--seeds=0,0"], "names one twice"),
        (["compare", str(tmp_path), "--tune=batch_size:1,2"], "--tune needs --config"),
        ([*args, "--first-difference"], "leave --config out"),
    ):
        with pytest.raises(SystemExit) as done:
            main(wrong)
        error = capsys.readouterr().err
        assert done.value.code == 2 and words in error and error.count("\n") == 1
