"""Low precision travels as its bits.

XLA:CPU computes no bfloat16 and no float8, so it converts the operand of their collectives: to
float32 (two times the bytes) or float16. Integers of the same width travel as they are. A copy
does not look at what it moves, so it may move the bits; a native sum must know the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax


def as_bits(copy: Callable[[Any], Any], x: Any) -> Any:
    """copy(x), moved bit-cast where x is bfloat16 (uint16) or a one-byte float (uint8).

    Args:
      copy: a collective that only copies (ppermute, all_gather); zeros that it fills in stay 0.
      x: an array of any dtype; float16 and wider, integers and bools go as they are.
    """
    narrow = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype != jnp.float16
    bits = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize if narrow else 0)
    if bits is None or jnp.finfo(x.dtype).bits != 8 * x.dtype.itemsize:  # float4: no such integer
        return copy(x)
    return lax.bitcast_convert_type(copy(lax.bitcast_convert_type(x, bits)), x.dtype)
