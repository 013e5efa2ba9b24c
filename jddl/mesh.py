"""Meshes and layouts: where the pieces of a whole array live.

A mesh is an ordered dict {axis name: size}. A layout is a `PartitionSpec` (natural: the whole
array is the logical array, its dimensions split over axes) or `Own(axes, dims)`: every worker
along `axes` has its own value and the whole array stacks them in front. The stacked worker axis,
shard_map's specs, shardings for checkpoints and the replica check all follow from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
from jax.sharding import PartitionSpec as P

from jddl.trees import Local

Mesh: TypeAlias = dict[str, int]
ROLES = ("data", "node", "local", "pipe", "tensor", "sequence", "expert")


# What the values of a worker's own leaf become when a run goes on with other workers.
RULES = {"mean": "every worker gets the mean of the old workers' values: the mean is conserved"}


@dataclass(frozen=True)
class Own:
    """Every worker along `axes` has its own value. A pytree leaf, hence no tuple.

    rule: of RULES, for loading under another mesh; None refuses.
    """

    axes: tuple[str, ...]
    dims: P = P()  # noqa: RUF009 - immutable
    rule: str | None = None


Layout: TypeAlias = P | Own


def parse_mesh(text: str) -> Mesh:
    """'data=4,tensor=2' -> {'data': 4, 'tensor': 2}.

    Raises:
      ValueError: in one line.
    """
    mesh: Mesh = {}
    for part in text.split(","):
        name, equals, size = (w.strip() for w in part.partition("="))
        if not equals or not size.isdecimal() or int(size) < 1 or not name.isidentifier():
            raise ValueError(f"mesh {text!r}: write it as 'data=8'")
        if name in mesh:
            raise ValueError(f"mesh {text!r}: the axis {name!r} stands twice")
        if name not in ROLES:
            raise ValueError(f"mesh {text!r}: unknown axis {name!r}; there are: {', '.join(ROLES)}")
        mesh[name] = int(size)
    return mesh


def size(mesh: Mesh) -> int:
    """The number of workers."""
    return math.prod(mesh.values())


def is_layout(x: Any) -> bool:
    """Whether x is a layout leaf (for `is_leaf=`)."""
    return isinstance(x, (P, Own))


def whole_spec(layout: Layout) -> P:
    """The PartitionSpec of the whole array: own axes stacked in front, then dims."""
    return P(*layout.axes, *layout.dims) if isinstance(layout, Own) else layout


def broadcast(layouts: Any, tree: Any) -> Any:
    """Spread a prefix tree of layouts over every leaf of `tree`."""
    return jax.tree.map(
        lambda layout, sub: jax.tree.map(lambda _: layout, sub), layouts, tree, is_leaf=is_layout
    )


def layout_of(state: Any, axes: tuple[str, ...]) -> Any:
    """Own(axes) inside a `Local` marker, P() elsewhere: the layout of any optax chain's state."""
    return jax.tree.map(
        lambda x: Local(Own(axes, rule=x.rule), x.rule) if isinstance(x, Local) else P(),
        state,
        is_leaf=lambda x: isinstance(x, Local),
    )


def state_specs(tx: Any, params: Any, axis: str | tuple[str, ...]) -> Any:
    """PartitionSpecs of an optax transform's state in your own shard_map loop.

    What differs between workers (marked `Local`, e.g. an error memory f32[d]) is split over
    `axis` along its first dimension, so the whole array is f32[n * d]; all else is replicated.

    Raises:
      ValueError: a per-worker leaf has no dimension to split.
    """

    def spec(x: Any) -> Any:
        if not isinstance(x, Local):
            return P()
        if any(leaf.ndim == 0 for leaf in jax.tree.leaves(x)):
            raise ValueError("a per-worker leaf is a scalar: give it a dimension of length 1")
        return Local(jax.tree.map(lambda _: P(axis), x.value), x.rule)

    shapes = jax.eval_shape(tx.init, params)
    return jax.tree.map(spec, shapes, is_leaf=lambda x: isinstance(x, Local))
