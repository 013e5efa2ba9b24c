"""The array moves that turn whole arrays into per-device ones, shared by vmap and pmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jddl.mesh import Layout, Mesh, Own, broadcast, is_layout, size

AxisMap = Callable[..., Callable[..., Any]]


def mapped(
    f: Callable[..., Any],
    mesh: Mesh,
    in_specs: Any,
    out_specs: Any,
    axis_map: AxisMap,
    unmapped: bool = False,
) -> Any:
    """`spmd` by a mapping transform (vmap, pmap) over each mesh axis, the first outermost.

    unmapped: replicated outputs are not mapped (`out_axes=None`), for a transform that takes one
    device's value then; taking it from the stacked array would make XLA send it to all others.

    Every mapped argument is brought to the form [axis sizes..., local shape]; P() inputs stay
    unmapped, so branches on replicated counters stay branches.
    """
    axes = tuple(mesh)

    def run(*args: Any) -> Any:
        flat_in, tree_in = jax.tree.flatten(args)
        layouts = jax.tree.leaves(broadcast(tuple(in_specs), args), is_leaf=is_layout)
        used = [_axes_of(layout) for layout in layouts]
        stacked = [_split(x, layout, mesh) for x, layout in zip(flat_in, layouts, strict=True)]
        # pmap wants at least one mapped argument
        probe = jnp.zeros(tuple(mesh.values()))

        def body(_: Any, *leaves: Any) -> Any:
            return f(*jax.tree.unflatten(tree_in, leaves))

        inner: Any = body
        for axis in reversed(axes):
            in_axes = [0, *(0 if axis in u else None for u in used)]
            out_axes = jax.tree.map(
                lambda x, axis=axis: None if unmapped and axis not in _axes_of(x) else 0,
                out_specs,
                is_leaf=is_layout,
            )
            inner = axis_map(
                inner,
                in_axes=tuple(in_axes),
                out_axes=out_axes,
                axis_name=axis,
                axis_size=mesh[axis],
            )
        out = inner(probe, *stacked)
        out_layouts = broadcast(out_specs, out)
        return jax.tree.map(
            lambda layout, x: _merge(x, layout, mesh, unmapped), out_layouts, out, is_leaf=is_layout
        )

    return run


def _axes_of(layout: Layout) -> set[str]:
    own = set(layout.axes) if isinstance(layout, Own) else set()
    dims = layout.dims if isinstance(layout, Own) else layout
    return own | {name for entry in dims for name in _names(entry)}


def _names(entry: Any) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _split(x: Any, layout: Layout, mesh: Mesh) -> Any:
    """Whole array -> [sizes of the axes it is split over, in mesh order..., local shape]."""
    own = layout.axes if isinstance(layout, Own) else ()
    dims = layout.dims if isinstance(layout, Own) else layout
    front, shape = list(own), list(x.shape[: len(own)])
    positions, local = list(range(len(own))), []
    for d, length in enumerate(x.shape[len(own) :]):
        for name in _names(dims[d] if d < len(dims) else None):
            if length % mesh[name]:
                raise ValueError(f"dimension {d} of {x.shape} does not divide over {name!r}")
            front.append(name)
            positions.append(len(shape))
            shape.append(mesh[name])
            length //= mesh[name]
        local.append(len(shape))
        shape.append(length)
    order = sorted(range(len(front)), key=lambda i: list(mesh).index(front[i]))
    return jnp.transpose(jnp.reshape(x, shape), [positions[i] for i in order] + local)


def _merge(x: Any, layout: Layout, mesh: Mesh, unmapped: bool) -> Any:
    """[axis sizes..., local shape] -> whole array; replicated axes take worker 0's value."""
    used = _axes_of(layout)
    if not unmapped:
        x = x[tuple(slice(None) if axis in used else 0 for axis in mesh)]
    front = [axis for axis in mesh if axis in used]
    own = layout.axes if isinstance(layout, Own) else ()
    dims = layout.dims if isinstance(layout, Own) else layout
    order = [front.index(name) for name in own]
    shape = [mesh[name] for name in own]
    for d, length in enumerate(x.shape[len(front) :]):
        names = _names(dims[d] if d < len(dims) else None)
        order += [*(front.index(name) for name in names), len(front) + d]
        shape.append(size({name: mesh[name] for name in names}) * length)
    return jnp.reshape(jnp.transpose(x, order), shape)


def put_whole(tree: Any, mesh: Mesh, specs: Any) -> Any:
    """Placement of the mapped runtimes: whole arrays stay where JAX puts them."""
    del mesh, specs
    return jax.tree.map(jnp.asarray, tree)
