"""All workers on one device."""

from __future__ import annotations

from functools import partial

import jax

from jddl.records import Runtime
from jddl.runtimes._layouts import mapped, put_whole

EXAMPLES = ("vmap",)


def vmap() -> Runtime:
    """All workers on one device by `jax.vmap`: any world size, fastest for small models.

    A collective under vmap is computed over the mapped axis, so the same per-device code runs; the
    results equal the other runtimes' up to summation order.
    """
    return Runtime(
        spmd=partial(mapped, axis_map=jax.vmap), devices=lambda mesh: 1, put=put_whole
    )
