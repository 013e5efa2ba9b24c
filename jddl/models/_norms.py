"""Normalisation layers: over the batch of all workers, and over groups of channels."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import lax

from jddl.collectives._api import reduce_from
from jddl.models._workers import over_workers
from jddl.records import Context

EPSILON = 1e-5
NORMS = ("none", "batch", "group")


class BatchNorm(nnx.Module):
    """y = scale (x - m) / sqrt(v + 1e-5) + bias over the global batch, one m and v a channel.

    m = (1/N) sum_i sum_x w x and v = (1/N) sum_i sum_x w (x - m)^2, i over the workers along
    `ctx.data`, N the sum of all weights w (`ctx.weights`, 1 where there are none; an example weighs
    the same at each of its positions). Since m is the mean of all workers, v holds the term between
    replicas, sum_i n_i (m_i - m)^2 / N, beside the variances within them.

    Running statistics follow with r <- momentum r + (1 - momentum) (m or v), v not corrected for
    its bias; they are replicated and bit-identical, and normalise where `ctx.train` is False.

    The gradient flows through m and v: both depend on every worker's x, and every worker's loss on
    both, so a sum over the workers is summed over the workers again on the way back. A layer sends
    two vectors of `channels` numbers in each direction (and N, where there are weights).

    Args:
      channels: length of the last dimension; all others are taken together.
      momentum: share of the old running statistics that stays.

    Reference: Ioffe and Szegedy, "Batch normalization", 2015.
    """

    def __init__(self, channels: int, rngs: nnx.Rngs, momentum: float = 0.9) -> None:
        del rngs
        self.scale = nnx.Param(jnp.ones(channels, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(channels, jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros(channels, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(channels, jnp.float32))
        self.momentum = momentum

    def __call__(self, x: Any, ctx: Context) -> Any:
        """x[b, ..., channels] of any floating dtype; computed in the running statistics' dtype."""
        wide = x.astype(self.mean[...].dtype)
        if ctx.train:
            mean, var = moments(wide, ctx)
            self.mean[...] = self.momentum * self.mean[...] + (1 - self.momentum) * mean
            self.var[...] = self.momentum * self.var[...] + (1 - self.momentum) * var
        else:
            mean, var = self.mean[...], self.var[...]
        scale, bias = (p[...].astype(wide.dtype) for p in (self.scale, self.bias))
        return (scale * (wide - mean) * lax.rsqrt(var + EPSILON) + bias).astype(x.dtype)


def moments(x: Any, ctx: Context) -> tuple[Any, Any]:
    """(mean, variance) of each channel over all examples of all workers, f[channels] each."""
    weights, count = _weights(x, ctx)
    mean = _sum(weights * x, ctx) / count
    return mean, _sum(weights * jnp.square(x - mean), ctx) / count


def _weights(x: Any, ctx: Context) -> tuple[Any, Any]:
    """(weight of each value, their sum over all workers, which has no gradient)."""
    places = x[..., 0].size
    if ctx.weights is None:  # every worker has as many: nothing travels
        return jnp.ones((), x.dtype), float(places * (lax.axis_size(ctx.data) if ctx.data else 1))
    weights = ctx.weights.astype(x.dtype)
    count = jnp.sum(weights) * (places // len(weights))
    if ctx.data:
        count = reduce_from(count, ctx.data, ctx.all_reduce)
    tiny = jnp.finfo(x.dtype).tiny
    return weights.reshape(-1, *[1] * (x.ndim - 1)), jnp.maximum(lax.stop_gradient(count), tiny)


def _sum(x: Any, ctx: Context) -> Any:
    """Sum over all dimensions but the last and over the workers; so is its cotangent."""
    return over_workers(jnp.sum(x, axis=tuple(range(x.ndim - 1))), ctx)


class GroupNorm(nnx.Module):
    """Each example by itself over its positions and groups of neighbouring channels.

    Nothing is shared between examples, so workers, padding and micro-batches change nothing.

    Reference: Wu and He, "Group normalization", 2018.
    """

    def __init__(self, channels: int, groups: int, rngs: nnx.Rngs) -> None:
        self.norm = nnx.GroupNorm(
            channels, groups, epsilon=EPSILON, use_fast_variance=False, rngs=rngs
        )

    def __call__(self, x: Any, ctx: Context) -> Any:
        """x[b, ..., channels]."""
        return self.norm(x)


def check_norm(model: str, norm: str, groups: int, argument: str, channels: int) -> None:
    """Refuse what `normalisation` cannot make; `argument` is what the model calls its channels.

    Raises:
      ValueError: unknown norm; groups that do not divide the channels, or that nothing uses.
    """
    if norm not in NORMS:
        raise ValueError(f"{model}: norm is one of {', '.join(NORMS)}, not {norm!r}")
    if norm == "group" and (groups < 1 or channels % groups):
        raise ValueError(f"{model}: groups divides {argument}={channels}, which {groups} does not")
    if norm != "group" and groups:
        raise ValueError(f"{model}: groups={groups} has no effect with norm={norm!r}")


def normalisation(norm: str, channels: int, groups: int, rngs: nnx.Rngs) -> Any:
    """The layer that `norm` names, as an attribute of a module; None for 'none'."""
    if norm == "none":
        return None
    return nnx.data(
        BatchNorm(channels, rngs) if norm == "batch" else GroupNorm(channels, groups, rngs)
    )
