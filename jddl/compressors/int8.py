"""Block-scaled 8-bit integers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jddl.records import Compressor

EXAMPLES = ("int8", "int8(block=64, stochastic=True)")
EXACT = "identity"


def int8(block: int = 256, stochastic: bool = False) -> Compressor:
    """One signed byte an entry and one float32 scale a block (float64 for float64 leaves).

    For a block b of x: s = max|b| / 127, code = round(b / s) in [-127, 127], decoded s * code.
    Deterministic rounding errs by at most s / 2 an entry; with stochastic=True, code = floor(b / s
    + u), u uniform in [0, 1), which is unbiased and errs by less than s.

    A block that holds inf or NaN decodes to NaN, so that an overflow is seen and not hidden.

    Args:
      block: entries that share a scale.
      stochastic: unbiased rounding; needs a key, a different one on each worker.

    Raises:
      ValueError: block < 1.
    """
    if block < 1:
        raise ValueError(f"block is at least 1, not {block}")

    def compress(leaf: Any, state: Any, key: Any) -> tuple[Any, Any]:
        flat = leaf.reshape(-1).astype(jnp.promote_types(leaf.dtype, jnp.float32))
        blocks = -(-flat.size // block)
        rows = jnp.pad(flat, (0, blocks * block - flat.size)).reshape(blocks, block)
        scales = jnp.max(jnp.abs(rows), axis=1, initial=0.0) / 127.0  # [blocks]
        scaled = rows / jnp.where(scales > 0, scales, 1.0)[:, None]
        noise = jax.random.uniform(key, scaled.shape) if stochastic else 0.5
        codes = jnp.clip(jnp.floor(scaled + noise), -127, 127).astype(jnp.int8)
        return {"codes": codes.reshape(-1)[: flat.size], "scales": scales}, state

    def decompress(payload: Any, like: Any, key: Any = None) -> Any:
        size = math.prod(like.shape)
        blocks = payload["scales"].shape[0]
        rows = jnp.pad(payload["codes"], (0, blocks * block - size)).reshape(blocks, block)
        scales = payload["scales"]
        scales = jnp.where(jnp.isfinite(scales), scales, jnp.nan)[:, None]
        values = (rows.astype(scales.dtype) * scales).reshape(-1)[:size]
        return values.reshape(like.shape).astype(like.dtype)

    return Compressor(
        lambda leaf: (),
        compress,
        decompress,
        combine="gather",
        key="per_worker" if stochastic else None,
    )
