"""What happens to an update that is not finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jddl import accounting
from jddl.mesh import Own, broadcast, is_layout
from jddl.records import Strategy
from jddl.trees import leaf_names

POLICIES = ("stop", "skip")


class NotFiniteError(ValueError):
    """Training was stopped: the loss or the state is not finite."""


def skip_nonfinite(strategy: Strategy) -> Strategy:
    """A step after which any leaf of the state is not finite on any worker changes nothing.

    All workers decide alike: a replicated leaf has the same bits on each; where the state holds a
    worker's own leaves (an error memory), the workers' flags travel as one scalar.
    """

    def step(state: Any, batch: Any, key: Any) -> Any:
        after, local = strategy.step(state, batch, key)
        good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in _floating(after)]))
        layouts = jax.tree.leaves(broadcast(strategy.layout(state), state), is_leaf=is_layout)
        if any(isinstance(layout, Own) for layout in layouts):
            with accounting.exchange():
                bad = accounting.payload(jnp.where(good, 0, 1).astype(jnp.int32))
                good = lax.psum(bad, strategy.axes) == 0
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, state), local

    return strategy._replace(step=step)


def nonfinite(state: Any) -> str | None:
    """The first leaf of a whole state that is not finite."""
    for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not bool(jnp.isfinite(leaf).all()):
            return name
    return None


def _floating(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
