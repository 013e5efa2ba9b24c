"""Sums over all workers inside a model, right in both directions."""

from __future__ import annotations

from typing import Any

from jddl.collectives._api import copy_to, reduce_from
from jddl.records import Context


def over_workers(x: Any, ctx: Context) -> Any:
    """x summed over the workers along `ctx.data`; so is its cotangent. x itself on one device.

    For a number that every worker's loss depends on, such as a batch statistic: `reduce_from` sums
    forward, and `copy_to` adds the workers' cotangents on the way back.
    """
    if ctx.data is None:
        return x
    return copy_to(reduce_from(x, ctx.data, ctx.all_reduce), ctx.data, ctx.all_reduce)
