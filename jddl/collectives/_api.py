"""`all_reduce` on trees, `schedule` by name, and the conjugate pair for models."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from jddl import accounting, catalog
from jddl.collectives._execute import Axis, execute
from jddl.collectives._schedule import Schedule
from jddl.trees import ravel

VERBS = ("all_reduce",)
REDUCED = "jddl.reduced"  # what `reduce_from` returns


@cache
def schedule(algorithm: str, n: int, verb: str = "all_reduce") -> Schedule:
    """The schedule that an algorithm's spec makes for n ranks, e.g. `schedule('ring', 8)`.

    Raises:
      ValueError: unknown algorithm, verb or argument.
    """
    if verb not in VERBS:
        raise ValueError(f"unknown verb {verb!r}; there are: {', '.join(VERBS)}")
    if n < 1:
        raise ValueError(f"a collective needs at least one rank, not {n}")
    made = catalog.make("collectives", algorithm, given={"n": n})
    assert isinstance(made, Schedule)
    if made.n != n:
        raise ValueError(f"{algorithm} is a schedule for {made.n} ranks; the axis has {n}")
    return made


def all_reduce(tree: Any, axis: Axis, algorithm: str = "native") -> Any:
    """Sum a pytree over the workers along `axis`; every worker receives the sum.

    All leaves of one dtype travel as one flat vector. Inside shard_map, pmap or vmap.

    Args:
      tree: pytree of arrays, the same shapes on each worker.
      axis: a mesh axis, or a tuple of axes taken as one.
      algorithm: a spec of the collectives shelf: 'native', 'ring', 'recursive_doubling', ...

    Raises:
      ValueError: when differentiated: the gradient of a collective depends on what the other
        workers do with its result, so a model says which it means: `copy_to` or `reduce_from`.
    """
    vectors, unravel = ravel(tree)
    with accounting.exchange():
        return unravel(
            {k: _sum(accounting.payload(v), axis, algorithm) for k, v in vectors.items()}
        )


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _sum(x: jax.Array, axis: Axis, algorithm: str) -> jax.Array:
    return execute(schedule(algorithm, lax.axis_size(axis)), x, axis)


@_sum.defjvp
def _no_gradient(axis: Axis, algorithm: str, primals: Any, tangents: Any) -> Any:
    raise ValueError(
        "jddl.all_reduce has no gradient: in a model use the conjugate pair jddl.reduce_from (sum "
        "forward, identity backward) and jddl.copy_to (identity forward, sum backward)"
    )


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def reduce_from(tree: Any, axis: Axis, algorithm: str = "native") -> Any:
    """Sum over `axis` forward, identity backward: after a row-parallel layer."""
    return _reduced(tree, axis, algorithm)


def _reduced(tree: Any, axis: Axis, algorithm: str) -> Any:
    """The sum under a name, by which rematerialisation keeps it instead of sending again."""
    total = all_reduce(tree, axis, algorithm)
    return jax.tree.map(lambda leaf: checkpoint_name(leaf, REDUCED), total)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def copy_to(tree: Any, axis: Axis, algorithm: str = "native") -> Any:
    """Identity forward, sum over `axis` backward: before a column-parallel layer."""
    return tree


reduce_from.defvjp(
    lambda tree, axis, algorithm: (_reduced(tree, axis, algorithm), None),
    lambda axis, algorithm, _, gradient: (gradient,),
)
copy_to.defvjp(
    lambda tree, axis, algorithm: (tree, None),
    lambda axis, algorithm, _, gradient: (all_reduce(gradient, axis, algorithm),),
)
