"""Top-k sparsification."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jddl.records import Compressor

EXAMPLES = ("topk(ratio=0.01)", "topk(ratio=0.25)")
EXACT = "topk(ratio=1.0)"


def topk(ratio: float) -> Compressor:
    """Keep the k = ceil(ratio d) entries of largest magnitude.

    C(x)_i = x_i for i among the k largest |x_i|, else 0. Contractive: |C(x) - x|^2 <= (1 - k/d)
    |x|^2; biased, so it is used with an error memory. The payload is k values in the leaf's dtype
    and k indices in the smallest unsigned integer that can hold d - 1.

    Args:
      ratio: kept share, 0 < ratio <= 1; at least one entry is kept.

    Raises:
      ValueError: a ratio outside (0, 1].

    References: Aji and Heafield, "Sparse communication for distributed gradient descent", 2017;
    Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", 2018.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio is in (0, 1], not {ratio}")

    def compress(leaf: Any, state: Any, key: Any) -> tuple[Any, Any]:
        flat = leaf.reshape(-1)
        k = min(flat.size, max(1, math.ceil(ratio * flat.size)))
        _, indices = lax.top_k(jnp.abs(flat), k)
        return {"values": flat[indices], "indices": indices.astype(_index_dtype(flat.size))}, state

    def decompress(payload: Any, like: Any, key: Any = None) -> Any:
        zeros = jnp.zeros(math.prod(like.shape), like.dtype)
        indices = payload["indices"].astype(jnp.int32)
        return zeros.at[indices].set(payload["values"]).reshape(like.shape)

    return Compressor(lambda leaf: (), compress, decompress, combine="gather")


def _index_dtype(size: int) -> Any:
    return jnp.uint8 if size <= 1 << 8 else jnp.uint16 if size <= 1 << 16 else jnp.uint32
