"""Real or simulated devices through `jax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding

from jddl.mesh import Mesh, Own, broadcast, is_layout, size, whole_spec
from jddl.records import Runtime

EXAMPLES = ("shard_map",)


def shard_map() -> Runtime:
    """`jax.shard_map` over a mesh of devices: the default runtime.

    `check_vma=False`, so gradients are local to a worker exactly as under vmap; what is declared
    replicated is checked by the replica check, not by types.
    """

    def spmd(f: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
        def run(*args: Any) -> Any:
            layouts = broadcast(tuple(in_specs), args)

            def body(*local: Any) -> Any:
                out = f(*jax.tree.map(_drop_own, layouts, local, is_leaf=is_layout))
                return jax.tree.map(_add_own, broadcast(out_specs, out), out, is_leaf=is_layout)

            return jax.shard_map(
                body,
                mesh=device_mesh(tuple(mesh.items())),
                in_specs=jax.tree.map(whole_spec, layouts, is_leaf=is_layout),
                out_specs=jax.tree.map(whole_spec, out_specs, is_leaf=is_layout),
                check_vma=False,
            )(*args)

        return run

    return Runtime(spmd=spmd, devices=lambda mesh: size(dict(mesh)), put=_put)


@cache
def device_mesh(axes: tuple[tuple[str, int], ...]) -> jax.sharding.Mesh:
    """The jax mesh over the first devices, automatic axis types."""
    names, sizes = zip(*axes, strict=True)
    devices = jax.devices()[: size(dict(axes))]
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names), devices=devices)


def _put(tree: Any, mesh: Mesh, specs: Any) -> Any:
    jax_mesh = device_mesh(tuple(mesh.items()))
    return jax.tree.map(
        lambda layout, x: jax.device_put(x, NamedSharding(jax_mesh, whole_spec(layout))),
        broadcast(specs, tree),
        tree,
        is_leaf=is_layout,
    )


def _drop_own(layout: Any, x: Any) -> Any:
    return x.reshape(x.shape[len(layout.axes) :]) if isinstance(layout, Own) else x


def _add_own(layout: Any, x: Any) -> Any:
    return x.reshape((1,) * len(layout.axes) + x.shape) if isinstance(layout, Own) else x
