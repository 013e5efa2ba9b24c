"""`ppermute` with partial permutations in every runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jddl.collectives._bits import moved

_UNDER_VMAP: ContextVar[bool] = ContextVar("under_vmap", default=False)


@contextmanager
def under_vmap() -> Iterator[None]:
    """While tracing for `jax.vmap`, whose ppermute knows full permutations only."""
    token = _UNDER_VMAP.set(True)
    try:
        yield
    finally:
        _UNDER_VMAP.reset(token)


def permute(x: Any, axis: str | tuple[str, ...], pairs: list[tuple[int, int]]) -> Any:
    """x of rank src at rank dst for each (src, dst); zeros at a rank that is no destination.

    Under vmap the permutation is completed and what nobody sent is masked; nothing travels there.
    """
    n = lax.axis_size(axis)
    if len(pairs) == n or not _UNDER_VMAP.get():
        return moved(lambda bits: lax.ppermute(bits, axis, pairs), x)
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    spare = zip(
        (r for r in range(n) if r not in sources),
        (r for r in range(n) if r not in targets),
        strict=True,
    )
    sent = lax.ppermute(x, axis, [*pairs, *spare])
    wanted = np.isin(np.arange(n), targets)
    return jnp.where(jnp.asarray(wanted)[lax.axis_index(axis)], sent, jnp.zeros_like(sent))
