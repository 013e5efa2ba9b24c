"""Dropout whose mask belongs to the example, not to the worker."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jddl.records import Context


def dropout(x: Any, rate: float, ctx: Context) -> Any:
    """x * m / (1 - rate), m ~ Bernoulli(1 - rate) in training, x elsewhere.

    x[b, ...]: row r's mask is drawn from (ctx.key, ctx.examples[r]), so it is the same whatever
    the number of workers and micro-batches.
    """
    if rate == 0 or not ctx.train:
        return x

    def draw(example: Any) -> Any:
        return jax.random.bernoulli(jax.random.fold_in(ctx.key, example), 1 - rate, x.shape[1:])

    return jnp.where(jax.vmap(draw)(ctx.examples), x / (1 - rate), 0)
