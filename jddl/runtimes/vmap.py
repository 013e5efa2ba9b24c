"""All workers on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jddl.collectives._permute import under_vmap
from jddl.mesh import Mesh
from jddl.records import Runtime
from jddl.runtimes._layouts import mapped, put_whole

EXAMPLES = ("vmap",)


def vmap() -> Runtime:
    """All workers on one device by `jax.vmap`: any world size, fastest for small models.

    A collective under vmap is computed over the mapped axis, so the same per-device code runs; the
    results equal the other runtimes' up to summation order.
    """

    def spmd(f: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
        run = mapped(f, mesh, in_specs, out_specs, axis_map=jax.vmap)

        def traced(*args: Any) -> Any:
            with under_vmap():
                return run(*args)

        return traced

    return Runtime(spmd=spmd, devices=lambda mesh: 1, put=put_whole)
