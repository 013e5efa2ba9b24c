"""Limits of the frame: executor against a hand-written ring, import and list times.

    make bench

Ratios are medians of alternating runs in one process, with an A/A control (the same hand-written
function compiled twice) and values checked. A limit holds when the median ratio is at most the
limit times the upper edge of the A/A ratio's 95 % interval and its own interval is no wider than
0.10 (of the step's microseconds: than the limit itself); a wider one is 'not judged'.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import jddl
from benchmarks import hand_written
from benchmarks.hand_written import N, ring
from jddl.experiment import device_state
from jddl.loop import jitted_step
from jddl.runtimes.shard_map import device_mesh
from jddl.trees import step_key

HOST_LIMIT = 50.0  # microseconds
RESULTS = Path(__file__).parent / "results"


def compile_for(f, x):
    """Compiled f on the whole array [N * d], one row a device."""
    mesh = device_mesh((("data", N),))
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    return jax.jit(lambda v: mapped(v) + 0).lower(x).compile()


def ratios(f, g, x, runs):
    """Ratio f / g of each alternating pair."""
    out = []
    for index in range(runs):
        pair = {}
        for name, function in [("f", f), ("g", g)][:: 1 if index % 2 else -1]:
            started = time.perf_counter()
            jax.block_until_ready(function(x))
            pair[name] = time.perf_counter() - started
        out.append(pair["f"] / pair["g"])
    return np.array(out)


def interval(sample, rng):
    """Median and bootstrap 95 % interval of the median."""
    medians = np.median(rng.choice(sample, (2000, len(sample))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(sample)), float(low), float(high)


def judge(name, limit, f, g, g_again, x):
    """One row of the result; repeats until the interval is narrow enough or 600 pairs were run."""
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(np.asarray(f(x)), np.asarray(g(x)), rtol=1e-5, atol=1e-5)
    measured, control = np.empty(0), np.empty(0)
    while len(measured) < 600:
        measured = np.concatenate([measured, ratios(f, g, x, 60)])
        control = np.concatenate([control, ratios(g_again, g, x, 60)])
        median, low, high = interval(measured, rng)
        if high - low <= 0.10:
            break
    a_median, a_low, a_high = interval(control, rng)
    if high - low > 0.10:
        verdict = "not judged"
    else:
        verdict = "holds" if median <= limit * max(a_high, 1.0) else "FAILS"
    return {
        "name": name, "limit": limit, "ratio": median, "interval": [low, high],
        "control": a_median, "control_interval": [a_low, a_high], "pairs": len(measured),
        "verdict": verdict,
    }  # fmt: skip


def host_time(runs=3000):
    """Microseconds that a whole step takes longer than the hand-written one; A/A beside it."""
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    put, mesh = experiment.runtime.put, experiment.mesh
    batch = put(experiment.task.batch(0, "train", 0), mesh, P("data"))
    params, stats = experiment.model.init(jax.random.key(0))
    fresh = lambda tree: put(jax.tree.map(jnp.array, tree), mesh, P())  # noqa: E731
    state = fresh(experiment.strategy.init(params, stats))
    assert not jax.tree.leaves(device_state(experiment).stats)
    ours, hand = jitted_step(experiment), hand_written.step(experiment.model, experiment.task)
    carried = [[fresh(params), fresh(hand_written.OPTIMIZER.init(params))] for _ in range(2)]
    taken = {name: [] for name in ("ours", "hand", "again")}
    for index in range(runs + 20):
        for name in list(taken)[:: 1 if index % 2 else -1]:
            started = time.perf_counter()
            if name == "ours":
                state, seen = ours(state, batch, step_key(0, index))
                jax.block_until_ready((state, seen))
            else:
                which = name == "again"
                *carried[which], seen = hand(*carried[which], batch)
                jax.block_until_ready((carried[which], seen))
            if index >= 20:
                taken[name].append((time.perf_counter() - started) * 1e6)
    for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(carried[0][0]), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4)
    rng = np.random.default_rng(0)
    difference = interval(np.array(taken["ours"]) - np.array(taken["hand"]), rng)
    control = interval(np.array(taken["again"]) - np.array(taken["hand"]), rng)
    verdict = "holds" if difference[0] <= HOST_LIMIT else "FAILS"
    if difference[2] - difference[1] > HOST_LIMIT:
        verdict = "not judged"
    return {
        "name": "step, ours - hand-written (us)",
        "limit": HOST_LIMIT,
        "ratio": difference[0],
        "interval": difference[1:],
        "control_interval": control[1:],
        "pairs": runs,
        "verdict": verdict,
    }


def seconds(code, runs=7):
    """Best wall seconds of a Python process."""
    best = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True)
        best.append(time.perf_counter() - started)
    return min(best)


def main():
    """Run all, print a table, write the dated JSON; exit code 1 where a limit fails."""
    jax.config.update("jax_num_cpu_devices", N)
    rows = []
    for mebibytes in (4, 16):
        x = jnp.asarray(
            np.random.default_rng(0).standard_normal(N * mebibytes * 2**18).astype(np.float32)
        )
        made = compile_for(lambda v: jddl.all_reduce(v, "data", "ring"), x)
        hand, again = compile_for(ring, x), compile_for(ring, x)
        rows.append(
            judge(f"ring executor / hand-written, {mebibytes} MiB", 1.05, made, hand, again, x)
        )
    rows.append(host_time())
    bare = seconds(["-c", "pass"])
    for name, limit, code in (
        ("import jddl adds (s)", 0.1, ["-c", "import jddl"]),
        ("jddl list (s)", 0.5, ["-m", "jddl", "list"]),
    ):
        taken = seconds(code) - (bare if "adds" in name else 0)
        verdict = "holds" if taken <= limit else "FAILS"
        rows.append({"name": name, "limit": limit, "ratio": taken, "verdict": verdict})
    for row in rows:
        print(f"{row['name']:40} {row['ratio']:.3f} (limit {row['limit']})  {row['verdict']}")
        if "interval" in row:
            print(
                f"    95 % {row['interval']}, A/A {row['control_interval']}, {row['pairs']} pairs"
            )
    RESULTS.mkdir(exist_ok=True)
    date = datetime.date.today().isoformat()
    machine = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "machine": platform.machine(),
    }
    (RESULTS / f"frame-{date}.json").write_text(
        json.dumps({**machine, "rows": rows}, indent=1) + "\n"
    )
    sys.exit(any(row["verdict"] == "FAILS" for row in rows))


if __name__ == "__main__":
    main()
