"""`jddl bench`: its numbers, its checked values, its command line."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jddl import catalog
from jddl.collectives._schedule import Schedule
from jddl.report import bench as table
from jddl.runtimes.vmap import vmap
from jddl.studies import bench_collectives, bench_compressors
from jddl.studies.bench_timing import Times, alternate, interval, parse_sizes

WRONG = '''"""A ring with a fault."""
import dataclasses

from jddl.collectives import ring
from jddl.collectives._schedule import Schedule

EXAMPLES = ("faulty",)


def faulty(n: int) -> Schedule:
    """A ring in which {fault}.

    Args:
      n: number of ranks.
    """
    good = ring(n)
    rounds = list(good.rounds)
    {change}
    return dataclasses.replace(good, rounds=tuple(rounds))
'''
FAULTS = {
    # Rank 0's first chunk, of 4, is never added to: its 6 entries lack a part at every rank.
    "a first message is lost": ("rounds[0] = (rounds[0][0][1:],)", 4, 6),
    # In the last round rank 0's chunk is not passed on to rank 1, which keeps an unfinished one.
    "a last message is lost": ("rounds[-1] = (rounds[-1][0][1:],)", 1, 6),
}


def jddl(*args):
    return subprocess.run(
        [sys.executable, "-m", "jddl", *map(str, args)], capture_output=True, text=True
    )


@pytest.fixture(params=FAULTS)
def faulty(request, tmp_path):
    change, ranks, entries = FAULTS[request.param]
    (tmp_path / "collectives").mkdir()
    (tmp_path / "collectives" / "faulty.py").write_text(
        WRONG.format(fault=request.param, change=change)
    )
    catalog.add_shelf(tmp_path)
    bench_collectives.schedule.cache_clear()  # both faults bear one name
    yield ranks * entries
    bench_collectives.schedule.cache_clear()
    catalog.remove_shelf(tmp_path)


def test_a_wrong_schedule_is_seen_element_by_element(faulty):
    rows = bench_collectives.rows(["ring", "faulty"], 4, [96], "float32", 1, vmap())
    assert [row["wrong"] for row in rows] == [0, faulty]


@pytest.mark.parametrize(
    ("dtype", "n"),
    [("float32", 1), ("float32", 8), ("bfloat16", 8), ("float16", 3), ("int32", 3)],
)
def test_right_algorithms_are_right_in_every_dtype(dtype, n):
    algorithms, reasons = bench_collectives.usable(catalog.examples("collectives"), n)
    assert not reasons
    for row in bench_collectives.rows(algorithms, n, [202], dtype, 1, vmap()):
        size = np.dtype(jnp.dtype(dtype)).itemsize
        assert (row["wrong"], row["elements"], row["bytes"]) == (0, 202 // size, 202 // size * size)


def test_bandwidths_are_nccl_tests():
    """Its documentation's factor 2(n-1)/n: 8 ranks, 1 GB in 0.1 s is 10 GB/s and 17.5 on the bus."""
    assert bench_collectives.bandwidths(10**9, 0.1, 8) == {"algbw": 10.0, "busbw": 17.5}
    assert bench_collectives.bandwidths(10**9, 0.1, 1)["busbw"] == 0.0
    (row,) = bench_collectives.rows(["ring"], 4, [4000], "int32", 3, vmap())
    assert row["algbw"] == pytest.approx(4000 / row["time"] / 1e3)
    assert row["busbw"] == pytest.approx(row["algbw"] * 1.5) and row["rounds"] == 6


def test_what_a_shelf_cannot_run_is_named_with_its_reason(monkeypatch):
    gather = Schedule("gather", 3, 3, (), verb="all_gather")

    def schedule(name, n):
        if name == "odd":
            raise ValueError("odd: n is a power of two, not 3")
        return gather

    monkeypatch.setattr(bench_collectives, "schedule", schedule)
    good, reasons = bench_collectives.usable(["odd", "gather"], 3)
    assert good == [] and reasons["odd"].startswith("odd:") and "all_gather" in reasons["gather"]


def test_sums_that_a_dtype_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds sums over 40 ranks"):
        bench_collectives.rows(["ring"], 40, [64], "bfloat16", 1, vmap())


def test_compressors_have_the_closed_forms_sizes_and_errors():
    specs = ["identity", "topk(ratio=0.25)", "int8(block=64)"]
    identity, topk, int8 = bench_compressors.rows(specs, [4002], 2)
    assert identity["payload_bytes"] == 4000 and identity["ratio"] == 1
    assert identity["error_normal"] == identity["error_heavy"] == 0
    assert topk["payload_bytes"] == 250 * (4 + 2) and int8["payload_bytes"] == 1000 + 16 * 4
    # What top-k leaves of a normal vector: with z = 1.1503 the upper quartile of |x|, the share
    # of |x|^2 inside [-z, z] is P(chi2_3 < z^2).
    left = np.sqrt(stats.chi2.cdf(stats.norm.ppf(0.875) ** 2, 3))
    assert topk["error_normal"] == pytest.approx(left, rel=0.05)
    assert topk["error_heavy"] < topk["error_normal"]  # fewer entries hold more of the norm
    assert int8["error_heavy"] > int8["error_normal"]  # one outlier makes a block's step coarse
    for row in (identity, topk, int8):
        for name in ("compress", "decompress"):
            low, high = row[f"{name}_interval"]
            assert 0 < low <= row[f"{name}_vs_copy"] <= high and row[f"{name}_gbps"] > 0


def test_relative_error_by_hand():
    error = bench_compressors.relative_error
    assert error(np.array([3.0, 4.0]), np.array([3.0, 1.0])) == pytest.approx(0.6)
    assert error(np.zeros(2), np.zeros(2)) == 0 and error(np.zeros(1), np.ones(1)) == np.inf


def test_the_interval_is_the_order_statistics_one():
    """A resample's median is below x_(k) exactly when most of m draws are: a binomial tail."""
    rng = np.random.default_rng(0)
    sample = np.sort(rng.standard_normal(201))
    found = interval(sample, rng, resamples=20_000)
    ranks = np.arange(1, 202)
    below = stats.binom.sf(100, 201, ranks / 201)  # P(median <= x_(k)): at least 101 draws
    low, high = (sample[np.searchsorted(below, q)] for q in (0.025, 0.975))
    step = 2 * np.max(np.diff(sample[70:131]))
    assert found.median == sample[100]
    assert abs(found.low - low) <= step and abs(found.high - high) <= step
    assert found.width == found.high - found.low
    with pytest.raises(ValueError, match="at least one"):
        interval(np.empty(0), rng)


def test_every_function_runs_first_and_last():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    times = alternate(calls, 300, np.random.default_rng(0))
    turns = np.array(order).reshape(300, 3)
    assert (np.sort(turns, axis=1) == list("abc")).all()
    for name in "abc":
        counts = (turns == name).sum(0)  # at each of the three places, 100 expected, sd 8
        assert (abs(counts - 100) < 40).all()
        assert isinstance(times[name], Times) and times[name].whole.shape == (300,)
        assert (times[name].whole >= times[name].dispatch).all()


def test_dispatch_ends_when_the_call_returns():
    class Late:
        def block_until_ready(self):
            import time

            time.sleep(0.02)
            return self

    (times,) = alternate({"late": Late}, 2, np.random.default_rng(0)).values()
    assert times.dispatch.max() < 0.02 <= times.whole.min()


def test_the_copy_that_throughputs_are_compared_with_copies():
    x = jnp.arange(1000.0)
    copy = jax.jit(bench_compressors.copied)(x)
    assert copy.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()


def test_sizes():
    assert parse_sizes(["100", "4K", " 2M", "1G"]) == [100, 4096, 2 << 20, 1 << 30]
    for wrong in ("4k", "0", "-1", "1.5M", "", "K"):
        with pytest.raises(ValueError, match="size"):
            parse_sizes([wrong])


def test_the_table_shows_an_interval_beside_its_value():
    columns = {"name": ("name", str), "x_vs_copy": ("/ copy", "{:.1f}".format)}
    rows = [{"name": "a", "x_vs_copy": 0.25, "x_interval": [0.1, 0.4]}]
    assert table.render(rows, columns).splitlines() == [
        "name          / copy", "-" * 20, "a     0.2 [0.1, 0.4]"
    ]  # fmt: skip


def test_the_command_line(tmp_path):
    done = jddl("bench", "collectives", "--n=4", "--sizes=64,1K", "--runs=2", "--dtype=float16")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    for column in (
        "bytes",
        "elements",
        "dtype",
        "op",
        "rounds",
        "time",
        "algbw",
        "busbw",
        "#wrong",
    ):
        assert column in head
    assert len([x for x in lines if "float16" in x]) == 2 * len(catalog.examples("collectives"))
    assert "host execution: 4 simulated devices" in done.stdout and "no communication" in lines[-1]

    (tmp_path / "collectives").mkdir()
    change, ranks, _ = FAULTS["a last message is lost"]
    faulty = WRONG.format(fault="a last message is lost", change=change)
    (tmp_path / "collectives" / "faulty.py").write_text(faulty)
    done = jddl("bench", "collectives", "faulty", f"--shelf={tmp_path}", "--runtime=vmap",
                "--sizes=64", "--runs=1", "--json")  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"][0]["wrong"] == ranks * 2 and "host execution" in report["note"]

    done = jddl("bench", "compressors", "--sizes=1K", "--runs=2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [r["compressor"] for r in report["rows"]] == catalog.examples("compressors")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "say what to bench"),
        (["collectves"], "did you mean 'collectives'"),
        (["tasks"], "has no bench; there are: collectives, compressors"),
        (["collectives", "rng"], "did you mean 'ring'"),
        (["collectives", "--dtype=float8"], "there are: float32"),
        (["collectives", "--sizes=4X"], "size '4X'"),
        (["collectives", "--sizes=2"], "less than one float32"),
        (["collectives", "--n=0"], "positive"),
        (["compressors", "--n=4"], "--n has no effect"),
        (["compressors", "topk"], "ratio"),
    ],
)
def test_a_mistake_is_one_line(args, words, capsys):
    from jddl.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["bench", *args])
    found = capsys.readouterr().err
    assert ended.value.code == 2 and words in found and found.count("\n") == 1
