"""Simulated CPU devices, made before the backend starts."""

from __future__ import annotations

import jax


def ensure_devices(count: int, at_most: bool = False) -> None:
    """See that `count` devices exist; on CPU simulate them if the backend has not started.

    Where an accelerator is installed nothing is simulated, unless JAX_PLATFORMS=cpu asks for it.

    Args:
      count: devices wanted.
      at_most: fewer are fine (accelerators that are there are taken as they are).

    Raises:
      ValueError: fewer devices than wanted.
    """
    if count > 1 and not _backend_started():
        jax.config.update("jax_num_cpu_devices", count)
    have = jax.device_count()
    if have < count and not at_most:
        raise ValueError(
            f"the mesh needs {count} devices, this process has {have}; a smaller mesh, or "
            "runtime='vmap', which needs one"
        )


def _backend_started() -> bool:
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())
