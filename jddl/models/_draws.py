"""Initial weights, drawn so that they compile fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax


def normal(gain: float = 1.0) -> Callable[..., Any]:
    """An initialiser: N(0, gain / fan in), fan in the product of all dimensions but the last.

    gain=2 before a ReLU (He et al., "Delving deep into rectifiers", 2015), 1 elsewhere. Drawn as
    one flat vector: XLA:CPU takes seconds to compile a draw of four dimensions.
    """

    def draw(key: Any, shape: tuple[int, ...], dtype: Any, out_sharding: Any = None) -> Any:
        flat = jax.random.normal(key, (math.prod(shape),), dtype)
        return (flat * math.sqrt(gain / math.prod(shape[:-1]))).reshape(shape)

    return draw
