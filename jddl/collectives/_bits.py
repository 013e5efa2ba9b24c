"""Low-precision arrays travel as their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

UNSIGNED = {1: jnp.uint8, 2: jnp.uint16}


def moved(move: Callable[[Any], Any], x: Any) -> Any:
    """move(x) for a collective that copies and adds nothing.

    XLA:CPU computes in neither, so it widens collectives of bfloat16 (to float32) and of float8
    (to float16); as unsigned integers of the same width they travel as they are, on every backend.
    Zeros where nothing is received stay zeros. A native sum must know the numbers: there
    `accounting.widened_on_cpu` says what XLA:CPU makes of it.
    """
    low = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize in UNSIGNED
    if not low or x.dtype == jnp.float16:  # XLA:CPU has float16
        return move(x)
    if jnp.finfo(x.dtype).bits != 8 * x.dtype.itemsize:  # float4: no integer that XLA:CPU leaves
        return move(x)
    bits = lax.bitcast_convert_type(x, UNSIGNED[x.dtype.itemsize])
    return lax.bitcast_convert_type(move(bits), x.dtype)
