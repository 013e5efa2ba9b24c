"""All-reduce algorithms with their values checked, in the columns of nccl-tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jddl.collectives._api import all_reduce, schedule
from jddl.mesh import Own
from jddl.records import Runtime
from jddl.studies.bench_timing import alternate

# dtype -> the largest integer up to which it holds every integer
EXACT = {"float32": 1 << 24, "bfloat16": 1 << 8, "float16": 1 << 11, "int32": (1 << 31) - 1}
PERIOD = 7  # of the pattern over a vector's entries; lengths of chunks are seldom its multiples


def rows(
    algorithms: Sequence[str],
    n: int,
    sizes: Sequence[int],
    dtype: str,
    runs: int,
    runtime: Runtime,
) -> list[dict[str, Any]]:
    """A row for each algorithm and size, all algorithms of a size timed in turns.

    Columns as nccl-tests prints them: bytes and elements of one rank's vector, dtype, op, time (us,
    median of a whole call), algbw = bytes / time and busbw = algbw 2(n-1)/n in GB/s (10^9 bytes a
    second), wrong = elements, over all ranks, that differ from the sum; and rounds, one port a
    rank. bytes is the asked size, rounded down to whole elements.

    Rank r's entry i is r + 1 + (i mod 7), so each rank's sum is n(n+1)/2 + n (i mod 7): exact in
    every dtype while it is small enough, and changed by a lost, doubled or misplaced part.

    Args:
      algorithms: specs of the collectives shelf.
      n: ranks.
      sizes: bytes of one rank's vector.
      dtype: float32, bfloat16, float16 or int32.
      runs: timed calls of each, at least 1.
      runtime: what runs the per-device code.

    Raises:
      ValueError: unknown algorithm or dtype, a size below one element, a sum that the dtype rounds.

    Reference: https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    if dtype not in EXACT:
        raise ValueError(f"unknown dtype {dtype!r}; there are: {', '.join(EXACT)}")
    if runs < 1:
        raise ValueError(f"at least one run is timed, not {runs}")
    largest = n * (n + 1) // 2 + n * (PERIOD - 1)
    if largest > EXACT[dtype]:
        raise ValueError(
            f"{dtype} rounds sums over {n} ranks, so they cannot be checked: use float32"
        )
    schedules = {a: schedule(a, n) for a in algorithms}
    itemsize = jnp.dtype(dtype).itemsize
    small = [size for size in sizes if size < itemsize]
    if small:
        raise ValueError(f"size {small[0]} is less than one {dtype} ({itemsize} bytes)")
    found = []
    for elements in [size // itemsize for size in sizes]:
        calls, wrong = {}, {}
        values, total = _pattern(n, elements)
        whole = runtime.put(jnp.asarray(values, dtype), {"data": n}, Own(("data",)))
        for algorithm in algorithms:
            reduce = _compiled(algorithm, n, whole, runtime)
            got = np.asarray(reduce(whole)).astype(np.float64)  # [n, elements]
            wrong[algorithm] = int(np.sum(got != total))  # NaN differs from everything
            calls[algorithm] = lambda reduce=reduce, x=whole: reduce(x)
        times = alternate(calls, runs, np.random.default_rng(0))
        for algorithm in algorithms:
            seconds = float(np.median(times[algorithm].whole))
            nbytes = elements * itemsize
            found.append(
                {
                    "algorithm": algorithm,
                    "bytes": nbytes,
                    "elements": elements,
                    "dtype": dtype,
                    "op": "sum",
                    "rounds": schedules[algorithm].num_rounds,
                    "time": seconds * 1e6,
                    **bandwidths(nbytes, seconds, n),
                    "wrong": wrong[algorithm],
                }
            )
    return found


def bandwidths(nbytes: int, seconds: float, n: int) -> Mapping[str, float]:
    """{'algbw', 'busbw'} of an all-reduce over n ranks, GB/s as nccl-tests defines them."""
    algbw = nbytes / seconds / 1e9
    return {"algbw": algbw, "busbw": algbw * 2 * (n - 1) / n}


def usable(algorithms: Sequence[str], n: int) -> tuple[list[str], dict[str, str]]:
    """(those that make a schedule for n ranks, {the others: why not}), for a whole shelf."""
    good, reasons = [], {}
    for algorithm in algorithms:
        try:
            made = schedule(algorithm, n)
        except ValueError as error:
            reasons[algorithm] = str(error)
            continue
        if made.verb == "all_reduce":
            good.append(algorithm)
        else:
            reasons[algorithm] = f"{made.verb}: only all_reduce is timed"
    return good, reasons


def _pattern(n: int, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """What the ranks hold, f64[n, elements], and what each must end with, f64[elements]."""
    along = np.arange(elements) % PERIOD
    values = np.arange(1, n + 1)[:, None] + along[None]
    return values.astype(np.float64), (n * (n + 1) // 2 + n * along).astype(np.float64)


def _compiled(algorithm: str, n: int, whole: Any, runtime: Runtime) -> Any:
    row = Own(("data",))
    run = runtime.spmd(lambda x: all_reduce(x, "data", algorithm), {"data": n}, (row,), row)
    return jax.jit(run).lower(whole).compile()
