"""The exact mean of the gradients."""

from __future__ import annotations

from typing import Any

import jax
import optax
from jax import lax

from jddl.collectives._api import all_reduce as reduce
from jddl.records import Aggregator, OnLists

EXAMPLES = ("mean",)


def mean(axis: str | tuple[str, ...] = "data", all_reduce: str = "native") -> Aggregator:
    """g <- (1/n) sum_i g_i over the workers along `axis`: synchronous data parallelism.

    Args:
      axis: mesh axis (or axes) of the data-parallel workers.
      all_reduce: spec of the collective that carries the sum, e.g. 'ring'.
    """

    if not axis:
        raise ValueError("axis names at least one mesh axis")

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        total = reduce(updates, axis, all_reduce)
        n = lax.axis_size(axis)
        return jax.tree.map(lambda x: x / n, total), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def on_lists() -> OnLists:
    """The mean of a list of trees."""

    def update(gradients: list[Any], state: Any, step: int) -> tuple[list[Any], Any]:
        agreed = jax.tree.map(lambda *xs: sum(xs) / len(xs), *gradients)
        return [agreed] * len(gradients), state

    return OnLists(lambda params, n: (), update)
