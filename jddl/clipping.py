"""Clipping by a global norm that knows over which axes a leaf is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from jddl import accounting


def clip_by_global_norm(max_norm: float, specs: Any = None) -> optax.GradientTransformation:
    """g <- g * min(1, max_norm / |g|), |g| the norm of the whole gradient, not of a shard.

    Args:
      max_norm: the largest norm that passes unchanged.
      specs: a PartitionSpec for each gradient leaf (a prefix tree is enough). The squares of a leaf
        that is cut over axes are summed over those axes, those of a replicated leaf count once.
        None: every leaf is whole on each worker, and nothing travels.

    Leaves that share their axes travel as one scalar. Difference from optax: a gradient of norm 0
    stays 0, and a not finite norm makes the whole gradient NaN alike on all workers.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        squares: dict[tuple[str, ...], Any] = {}
        leaves = jax.tree.leaves(updates)
        for leaf, spec in zip(leaves, _specs(specs, updates), strict=True):
            axes = _axes(spec)
            wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))  # 256^2 is no float16
            squares[axes] = squares.get(axes, 0) + jnp.sum(jnp.square(wide))
        norm = jnp.sqrt(sum(_over(axes, value) for axes, value in squares.items()))
        norm = jnp.where(jnp.isfinite(norm), norm, jnp.nan)  # else an infinite norm would give 0
        factor = max_norm / jnp.maximum(norm, max_norm)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _specs(specs: Any, tree: Any) -> list[P]:
    is_spec = lambda x: isinstance(x, P)  # noqa: E731
    if specs is None:
        return [P()] * len(jax.tree.leaves(tree))
    spread = jax.tree.map(
        lambda spec, sub: jax.tree.map(lambda _: spec, sub), specs, tree, is_leaf=is_spec
    )
    return jax.tree.leaves(spread, is_leaf=is_spec)


def _axes(spec: P) -> tuple[str, ...]:
    entries = [(e,) if isinstance(e, str) else e or () for e in spec]
    return tuple(sorted(axis for entry in entries for axis in entry))


def _over(axes: tuple[str, ...], value: Any) -> Any:
    if not axes:
        return value
    with accounting.exchange():
        return lax.psum(accounting.payload(value), axes)
