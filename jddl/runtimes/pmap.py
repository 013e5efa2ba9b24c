"""The classic form: one mapped axis over devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jddl.mesh import Mesh, size
from jddl.records import Runtime
from jddl.runtimes._layouts import mapped, put_whole

EXAMPLES = ("pmap",)


def pmap() -> Runtime:
    """`jax.pmap` over one mesh axis.

    Raises:
      ValueError: (from spmd) a mesh of more than one axis.
    """

    def spmd(f: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
        if len(mesh) != 1:
            raise ValueError(
                f"runtime 'pmap' runs one axis, not {', '.join(mesh)}: use 'shard_map' or 'vmap'"
            )
        return mapped(f, mesh, in_specs, out_specs, axis_map=jax.pmap, unmapped=True)

    return Runtime(spmd=spmd, devices=lambda mesh: size(dict(mesh)), put=put_whole)
