"""Two trees of equal structure, bit for bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jddl.trees import leaf_names


class Leaf(NamedTuple):
    """The first leaf that differs, after which step (0: as initialised), and by how much.

    largest: max |a - b| (NaN where one has a NaN); ulps: the most representable numbers between two
    elements (0.0 and -0.0 are neighbours), None for integers; others: how many more leaves differ.
    """

    step: int
    name: str
    largest: float
    ulps: int | None
    others: int


def apart(step: int, one: Any, two: Any, order: list[str]) -> Leaf | None:
    """The first leaf, in `order` and then in the tree's, whose bits differ."""
    names, pairs = leaf_names(one), zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    differ = {}
    for name, (a, b) in zip(names, pairs, strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.tobytes() != y.tobytes():
            differ[name] = (x, y)
    if not differ:
        return None
    name = min(differ, key=lambda n: order.index(n) if n in order else len(order))
    x, y = differ[name]
    with np.errstate(invalid="ignore"):  # inf - inf
        largest = float(np.max(np.abs(x.astype(np.float64) - y.astype(np.float64))))
    return Leaf(step, name, largest, ulps(x, y), len(differ) - 1)


def ulps(one: np.ndarray, two: np.ndarray) -> int | None:
    """The most representable numbers between two elements; None where they are no floats."""
    if not jax.numpy.issubdtype(one.dtype, jax.numpy.floating):
        return None
    unsigned = np.dtype(f"u{one.dtype.itemsize}")
    top = unsigned.type(1 << (8 * one.dtype.itemsize - 1))

    def ordered(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(unsigned)
        return np.where(bits & top, ~bits, bits | top)  # as the numbers are ordered

    a, b = ordered(one), ordered(two)
    return int(np.max(np.where(a > b, a - b, b - a), initial=0))
