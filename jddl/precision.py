"""Half precision: what is computed in it, and the loss scale that keeps float16 in range."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jddl.records import Context, Model

PRECISIONS = ("float32", "bfloat16", "float16")
SMALLEST, LARGEST = 2.0**-14, 2.0**24


class LossScaling(NamedTuple):
    """The loss is multiplied by a scale before it is differentiated, the gradient divided by it.

    initial: the first scale; period: good steps in a row after which it doubles. It halves after a
    step whose gradient overflows on any worker.

    Reference: Micikevicius et al., "Mixed precision training", 2018.
    """

    initial: float = 2.0**15
    period: int = 2000


class LossScale(NamedTuple):
    """State, the same on all workers: the scale f32, and good steps since it changed i32."""

    scale: Any
    good: Any


def in_precision(model: Model, dtype: str) -> Model:
    """The model computed in `dtype`; parameters, running statistics and outputs keep their own.

    Inputs and parameters are cast on entry and outputs back to the parameters' dtype, so the loss
    is taken in it, and gradients, which pass the cast backwards, arrive in it. The optimiser and
    the exchange see master copies only.
    """

    def lower(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
        )

    def embed(params: Any, stats: Any, x: Any, ctx: Context) -> Any:
        return model.embed(lower(params), stats, lower(jnp.asarray(x)), ctx)

    def block(params: Any, stats: Any, x: Any, ctx: Context) -> Any:
        return model.block(lower(params), stats, x, ctx)

    def head(params: Any, stats: Any, x: Any, ctx: Context) -> Any:
        x, stats, aux = model.head(lower(params), stats, x, ctx)
        return x.astype(jnp.result_type(*jax.tree.leaves(params))), stats, aux

    return model._replace(embed=embed, block=block, head=head)


def first_scale(scaling: LossScaling | None) -> Any:
    """The scale's state before the first step; () without scaling."""
    if scaling is None:
        return ()
    return LossScale(jnp.float32(scaling.initial), jnp.zeros((), jnp.int32))


def next_scale(scaling: LossScaling, state: LossScale, finite: Any) -> LossScale:
    """Halve after an overflow, double after `period` good steps."""
    good = jnp.where(finite, state.good + 1, 0)
    grown = good >= scaling.period
    scale = jnp.where(finite, jnp.where(grown, 2.0, 1.0), 0.5) * state.scale
    return LossScale(jnp.clip(scale, SMALLEST, LARGEST), jnp.where(grown, 0, good))


def not_finite(tree: Any) -> Any:
    """i32: 1 where any leaf holds an infinity or NaN."""
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)])
    return 1 - jnp.all(finite).astype(jnp.int32)
