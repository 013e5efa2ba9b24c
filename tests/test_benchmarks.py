"""The rule for judging on samples whose answer is known, the runner, and the table in the docs."""

import json
import re
import time

import numpy as np
import pytest

from benchmarks import __main__ as runner
from benchmarks import table
from benchmarks._judge import judge_amount, judge_ratio
from benchmarks._pairs import Effort, Question, answer


def pairs(truth, noise, runs=300, seed=0):
    """Ratios of two log-normal times whose medians have the ratio `truth`."""
    rng = np.random.default_rng(seed)
    return truth * np.exp(noise * (rng.standard_normal(runs) - rng.standard_normal(runs)))


def ratio_verdict(measured, control, limit):
    return judge_ratio(measured, control, limit, np.random.default_rng(9)).verdict


@pytest.mark.parametrize("seed", range(20))
def test_a_program_against_itself_holds_and_one_20_percent_slower_fails(seed):
    control = pairs(1.0, 0.1, seed=100 + seed)
    assert ratio_verdict(pairs(1.0, 0.1, seed=seed), control, 1.05) == "holds"
    assert ratio_verdict(pairs(1.2, 0.1, seed=seed), control, 1.05) == "FAILS"


def test_the_bound_is_the_limit_times_the_upper_edge_of_the_control():
    """Half 0.98 and half 1.02: the control's median has the interval [0.98, 1.02] exactly."""
    control = np.tile([0.98, 1.02], 50)
    judged = judge_ratio(np.full(100, 1.07), control, 1.05, np.random.default_rng(0))
    assert judged.control[1:] == (0.98, 1.02) and judged.measured == (1.07, 1.07, 1.07)
    assert judged.verdict == "holds"  # 1.07 <= 1.05 * 1.02 = 1.071
    assert ratio_verdict(np.full(100, 1.0711), control, 1.05) == "FAILS"
    # An edge below 1 tightens: 1.05 * 0.99 = 1.0395
    assert ratio_verdict(np.full(100, 1.045), np.full(100, 0.99), 1.05) == "FAILS"


def test_wide_intervals_are_not_judged():
    steady, wild = np.full(100, 1.0), np.tile([0.9, 1.1], 50)
    assert ratio_verdict(wild, steady, 2.0) == "not judged"
    assert ratio_verdict(steady, wild, 2.0) == "not judged"  # its edge would pass 2.2
    assert ratio_verdict(np.full(9, np.nan), steady, 2.0) == "not judged"
    just = np.tile([1.0, 1.0 + 0.0999], 50)
    assert ratio_verdict(just, steady, 2.0) == "holds"


def test_amounts_are_judged_by_the_limit_alone():
    rng = np.random.default_rng(0)
    zero = rng.normal(0, 20, 500)  # microseconds
    for truth, verdict in ((30, "holds"), (80, "FAILS")):
        assert judge_amount(rng.normal(truth, 20, 500), zero, 50, rng).verdict == verdict
    # A control of 40 us does not move the bound; 60 > 50
    assert judge_amount(np.full(50, 60.0), np.full(50, 40.0), 50, rng).verdict == "FAILS"
    wild = np.tile([-30.0, 30.0], 50)
    assert judge_amount(wild, zero, 50, rng).verdict == "not judged"
    assert judge_amount(np.full(50, 1.0), wild, 50, rng).verdict == "not judged"


@pytest.fixture
def clock(monkeypatch):
    """A clock that functions advance themselves: their times are exact."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def taking(*seconds):
        turns = [0]

        def call():
            now[0] += seconds[turns[0] % len(seconds)]
            turns[0] += 1

        return call

    return taking


def test_rows_hold_the_arithmetic_of_the_pairs(clock):
    questions = [Question("ratio", 1.05), Question("difference", 50.0, "us")]
    ratio, difference = answer(questions, clock(1.2e-3), clock(1e-3), clock(1.01e-3), Effort(5, 50))
    assert ratio["value"] == pytest.approx(1.2) and ratio["control"] == pytest.approx(1.01)
    assert difference["value"] == pytest.approx(200) and difference["control"] == pytest.approx(10)
    assert ratio["verdict"] == difference["verdict"] == "FAILS"
    assert ratio["pairs"] == 5  # as narrow as can be at once


def test_the_slower_stands_above_where_a_program_meets_itself(clock):
    """Faster by 20 % is as far from equal as slower: an A/A benchmark sees both."""
    one_way = answer([Question("", 1.05)], clock(8.0), clock(10.0), clock(10.0), Effort(5, 5))
    assert one_way[0]["verdict"] == "holds"
    question = Question("", 1.05, both_ways=True)
    (row,) = answer([question], clock(8.0), clock(10.0), clock(10.0), Effort(5, 5))
    assert row["value"] == pytest.approx(1.25) and row["verdict"] == "FAILS"


def test_repetitions_are_added_until_the_interval_is_narrow(clock):
    noise = 1 + 0.3 * np.random.default_rng(0).standard_normal(100_000)
    (row,) = answer(
        [Question("", 1.05)], clock(*abs(noise)), clock(1.0), clock(1.0), Effort(20, 5000)
    )
    assert row["verdict"] == "holds" and row["pairs"] > 20
    assert row["interval"][1] - row["interval"][0] <= 0.10
    (row,) = answer([Question("", 1.05)], clock(1.0, 2.0), clock(1.0), clock(1.0), Effort(20, 70))
    assert row["verdict"] == "not judged" and row["pairs"] == 60


def test_dispatch_is_asked_apart_from_the_whole(clock):
    late = clock(0.5)

    class Result:
        def block_until_ready(self):
            late()
            return self

    def ours():
        started()
        return Result()

    started = clock(0.1)
    whole, dispatch = answer(
        [Question("", 1.0, "s"), Question("", 1.0, "s", "dispatch")],
        ours, clock(0.0), clock(0.0), Effort(3, 3),
    )  # fmt: skip
    assert whole["value"] == pytest.approx(0.6) and dispatch["value"] == pytest.approx(0.1)


@pytest.mark.parametrize("name", runner.names())
def test_each_benchmark_runs_and_compares_its_values(name, tmp_path):
    assert runner.main([name, "--quick", f"--out={tmp_path}"]) == 0
    (path,) = tmp_path.glob("*.json")
    assert re.fullmatch(rf"{name}-\d{{4}}-\d\d-\d\d\.json", path.name)
    result = json.loads(path.read_text())
    assert {"python", "jax", "machine", "processor", "cores", "load_average"} <= set(result)
    assert result["quick"] and table.newest(name, tmp_path) is None
    for row in result["rows"]:
        assert row["verdict"] in ("holds", "FAILS", "not judged", "reported") and row["pairs"] >= 3
        assert row["interval"][0] <= row["value"] <= row["interval"][1]


def test_a_wrong_value_ends_a_benchmark_before_it_is_timed(monkeypatch):
    from benchmarks import executor

    monkeypatch.setattr(executor, "ring", lambda x: 7 * x)
    monkeypatch.setattr(executor, "answer", None)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        executor.rows(quick=True)


def test_what_has_no_limit_is_reported(clock):
    (row,) = answer([Question("", None)], clock(3.0), clock(1.0), clock(1.0), Effort(5, 5))
    assert (
        row["verdict"] == "reported" and row["value"] == pytest.approx(3) and row["limit"] is None
    )
    assert "no limit" in runner.line(row)


@pytest.mark.parametrize(
    ("verdict", "code"), [("holds", 0), ("reported", 0), ("FAILS", 1), ("not judged", 1)]
)
def test_only_a_limit_that_holds_is_a_pass(verdict, code, monkeypatch, tmp_path):
    import benchmarks.startup

    monkeypatch.setattr(benchmarks.startup, "rows", lambda quick: [a_row(verdict=verdict)])
    assert runner.main(["startup", f"--out={tmp_path}"]) == code
    assert table.newest("startup", tmp_path)["rows"][0]["verdict"] == verdict


def test_an_unknown_benchmark_is_one_line(capsys):
    assert runner.main(["hots"]) == 2
    assert capsys.readouterr().err == "unknown benchmark 'hots'; did you mean 'host'?\n"


def a_row(**changed):
    row = {"name": "a step", "unit": "us", "limit": 50.0, "value": 12.34, "interval": [10.0, 14.0],
           "control": 0.0, "control_interval": [-1.0, 1.0], "pairs": 500, "verdict": "holds"}  # fmt: skip
    return row | changed


def test_the_table_takes_the_newest_full_result(tmp_path):
    machine = {"processor": "CPU", "machine": "x86_64", "cores": 2, "load_average": [0.1, 0.2, 3],
               "python": "3.11", "jax": "0.10", "platform": "cpu", "quick": False}  # fmt: skip
    for date, changed, row in (
        ("2026-01-09", {}, a_row(value=1.0)),
        ("2026-01-10", {}, a_row()),
        ("2026-01-11", {"quick": True}, a_row(value=2.0)),
    ):
        result = machine | {"date": date, "rows": [row]} | changed
        (tmp_path / f"host-{date}.json").write_text(json.dumps(result))
    (tmp_path / "host-other-2027-01-01.json").write_text("{}")
    text = table.render({"host": table.newest("host", tmp_path), "startup": None})
    assert "| a step | us | 50 | 12.3 | 10.0 to 14.0 | -1.0 to 1.0 | 500 | holds |" in text
    assert "2026-01-10, CPU (x86_64), 2 cores, load average before it 0.10, 0.20, 3.00" in text
    assert "No result yet: `python -m benchmarks startup`" in text


def test_redrawing_changes_nothing_outside_the_marks():
    page = f"# A\n{table.BEGIN}old\n{table.END}after\n"
    once = table.redraw(page, "new")
    assert once == f"# A\n{table.BEGIN}\nnew\n{table.END}after\n"
    assert table.redraw(once, "new") == once
    with pytest.raises(ValueError, match="lacks the line"):
        table.redraw("# A\n", "new")


def test_the_docs_show_what_the_results_say():
    page = table.PAGE.read_text()
    shown = table.render({name: table.newest(name) for name in runner.names()})
    assert table.redraw(page, shown) == page, "run: python -m benchmarks.table"
