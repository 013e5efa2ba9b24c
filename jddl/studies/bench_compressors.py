"""Compressors: payload, error and throughput beside a plain copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jddl import catalog
from jddl.records import Compressor
from jddl.studies.bench_timing import Interval, alternate, interval

HEAVY_DOF = 2.0  # Student's t with 2 degrees of freedom: a mean, but no variance


def rows(specs: Sequence[str], sizes: Sequence[int], runs: int) -> list[dict[str, Any]]:
    """A row for each compressor and size, on one device.

    Columns: bytes of the float32 vector, payload_bytes, ratio = bytes / payload_bytes; error_normal
    and error_heavy = |C(x) - x| / |x| (2-norm) for x standard normal and for x Student-t with two
    degrees of freedom; for each of compress and decompress: GB/s = bytes / median time / 10^9, and
    the throughput relative to a copy of the vector with its 95 % interval (median over repetitions
    of copy's time / its own, taken in turns; 1 is as fast as a copy).

    Args:
      specs: of the compressors shelf.
      sizes: bytes of the vector, rounded down to whole float32.
      runs: timed repetitions, at least 1.

    Raises:
      ValueError: unknown compressor, a size below one element.
    """
    if runs < 1:
        raise ValueError(f"at least one run is timed, not {runs}")
    small = [size for size in sizes if size < 4]
    if small:
        raise ValueError(f"size {small[0]} is less than one float32 (4 bytes)")
    made = [(spec, catalog.make("compressors", spec)) for spec in specs]
    return [_row(spec, c, size // 4, runs) for size in sizes for spec, c in made]


def _row(spec: str, compressor: Compressor, elements: int, runs: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    normal = jnp.asarray(rng.standard_normal(elements), jnp.float32)
    heavy = jnp.asarray(rng.standard_t(HEAVY_DOF, elements), jnp.float32)
    key = jax.random.key(0) if compressor.key else None
    state = compressor.init(normal)

    def compress(x: Any) -> Any:
        return compressor.compress(x, state, key)[0]

    def decompress(payload: Any) -> Any:
        return compressor.decompress(payload, normal, key)

    packing, unpacking = jax.jit(compress), jax.jit(decompress)
    copying = jax.jit(copied)
    errors = {}
    for name, x in (("error_normal", normal), ("error_heavy", heavy)):
        errors[name] = relative_error(np.asarray(x), np.asarray(unpacking(packing(x))))
    payload = jax.block_until_ready(packing(normal))
    jax.block_until_ready(copying(normal))
    calls = {
        "copy": lambda: copying(normal),
        "compress": lambda: packing(normal),
        "decompress": lambda: unpacking(payload),
    }
    times = alternate(calls, runs, rng)
    # From the shapes: a payload is never declared by its compressor.
    payload_bytes = sum(
        x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(compress, normal))
    )
    row: dict[str, Any] = {
        "compressor": spec,
        "bytes": 4 * elements,
        "payload_bytes": payload_bytes,
        "ratio": 4 * elements / payload_bytes,
        **errors,
    }
    for name in ("compress", "decompress"):
        whole = times[name].whole
        relative: Interval = interval(times["copy"].whole / whole, rng)
        row[f"{name}_gbps"] = 4 * elements / float(np.median(whole)) / 1e9
        row[f"{name}_vs_copy"] = relative.median
        row[f"{name}_interval"] = [relative.low, relative.high]
    return row


def copied(x: jax.Array) -> jax.Array:
    """x in new memory: a jitted identity would hand its argument back."""
    return jnp.array(x, copy=True)


def relative_error(x: np.ndarray, y: np.ndarray) -> float:
    """|y - x| / |x| in float64; 0 where both are zero."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    norm = float(np.linalg.norm(x))
    difference = float(np.linalg.norm(y - x))
    return difference / norm if norm else (0.0 if difference == 0 else float("inf"))
