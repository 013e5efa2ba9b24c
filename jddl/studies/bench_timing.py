"""Wall times of functions that take turns, and the bootstrap interval of a median."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


class Times(NamedTuple):
    """Seconds of each repetition.

    Attributes:
      dispatch: f64[runs], until the call returned; what it started may still be running.
      whole: f64[runs], until its results were ready.
    """

    dispatch: np.ndarray
    whole: np.ndarray


class Interval(NamedTuple):
    """A median and the 95 % interval in which it lies."""

    median: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low


def alternate(
    calls: Mapping[str, Callable[[], Any]], runs: int, rng: np.random.Generator
) -> dict[str, Times]:
    """Time every function once a repetition, in a new random order each time.

    A fixed order, or one that is only reversed, gives a function always the same neighbours (the
    middle one of three never runs first), whose caches and left-over threads then count as its own.

    Args:
      calls: functions without arguments that return a pytree of arrays. Each should have run
        before, so that nothing is compiled here.
      runs: repetitions.
      rng: draws the orders.
    """
    names = list(calls)
    seconds = {name: np.empty((2, runs)) for name in names}
    for index in range(runs):
        for place in rng.permutation(len(names)):
            call = calls[names[place]]
            started = time.perf_counter()
            out = call()
            returned = time.perf_counter()
            jax.block_until_ready(out)
            ready = time.perf_counter()
            seconds[names[place]][:, index] = returned - started, ready - started
    return {name: Times(*both) for name, both in seconds.items()}


def interval(sample: np.ndarray, rng: np.random.Generator, resamples: int = 2000) -> Interval:
    """Median and percentile-bootstrap 95 % interval of the median of a sample f64[m].

    Reference: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Raises:
      ValueError: an empty sample.
    """
    if not len(sample):
        raise ValueError("an interval needs at least one measurement")
    medians = [
        np.median(rng.choice(sample, (min(100, resamples - start), len(sample))), axis=1)
        for start in range(0, resamples, 100)  # in pieces: the whole would be m x 2000 numbers
    ]
    low, high = np.quantile(np.concatenate(medians), [0.025, 0.975])
    return Interval(float(np.median(sample)), float(low), float(high))


def parse_sizes(texts: list[str]) -> list[int]:
    """['4K', '1M', '100'] -> [4096, 1048576, 100] bytes; K, M and G are powers of 1024.

    Raises:
      ValueError: something else, or nothing.
    """
    sizes = []
    for text in texts:
        found = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
        if not found or int(found[1]) == 0:
            raise ValueError(f"size {text!r}: write bytes as '4096', '4K', '1M' or '1G'")
        sizes.append(int(found[1]) << 10 * " KMG".index(found[2] or " "))
    if not sizes:
        raise ValueError("say at least one size, for example --sizes=4K,1M")
    return sizes


def where_run(n: int) -> str:
    """What the times of a bench over n ranks are, in words: never communication where simulated."""
    kind = jax.devices()[0].device_kind
    if jax.default_backend() == "cpu":
        return (
            f"host execution: {n} simulated devices share the cores and the memory of one host, so "
            "time, algbw and busbw are no communication times; bytes and rounds hold anywhere"
        )
    return f"wall time on {min(n, jax.device_count())} x {kind}"
