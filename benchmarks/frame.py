"""Limits of the frame: executor against a hand-written ring, import and list times.

    make bench

Ratios are medians of alternating runs in one process, with an A/A control (the same hand-written
function compiled twice) and values checked. A limit holds when the median ratio is at most the
limit times the upper edge of the A/A ratio's 95 % interval and its own interval is no wider than
0.10; a wider one is 'not judged'.
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
from jax import lax
from jax.sharding import PartitionSpec as P

import jddl
from jddl.runtimes.shard_map import device_mesh

N = 8
RESULTS = Path(__file__).parent / "results"


def hand_written_ring(x):
    """The same ring written out with ppermute; f32[d] with d divisible by N."""
    rank = lax.axis_index("data")
    ahead = [(i, (i + 1) % N) for i in range(N)]
    chunks = x.reshape(N, -1)
    for t in range(N - 1):
        received = lax.ppermute(chunks[(rank - t) % N], "data", ahead)
        chunks = chunks.at[(rank - t - 1) % N].add(received)
    for t in range(N - 1):
        received = lax.ppermute(chunks[(rank + 1 - t) % N], "data", ahead)
        chunks = chunks.at[(rank - t) % N].set(received)
    return chunks.reshape(-1)


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
        hand, again = compile_for(hand_written_ring, x), compile_for(hand_written_ring, x)
        rows.append(
            judge(f"ring executor / hand-written, {mebibytes} MiB", 1.05, made, hand, again, x)
        )
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
