"""How a schedule counts."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax


def of_float_steps(schedule: optax.Schedule) -> optax.Schedule:
    """The schedule fed with the step as a float of the widest enabled kind.

    optax counts in int32, and a schedule would divide it in float32 under jax_enable_x64 too.
    """

    def at(count: Any) -> Any:
        return schedule(jnp.asarray(count, float))

    return at
