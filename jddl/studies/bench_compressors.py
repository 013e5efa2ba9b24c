"""Compressors: payload, error and throughput beside a plain copy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    return [_row(spec, c, _drawn(size // 4), runs) for size in sizes for spec, c in made]


def gradient_rows(
    specs: Sequence[str], leaves: Mapping[str, np.ndarray], runs: int
) -> list[dict[str, Any]]:
    """A row for each compressor on real gradients, one float32 vector a worker.

    Columns as in `rows`, but for the errors: error_gradient is the mean over the workers of
    |C(g_i) - g_i| / |g_i|, error_mean is |mean_i C(g_i) - mean_i g_i| / |mean_i g_i|. A compressor
    of scope 'leaf' gets the leaves one by one. Times are of the first worker's gradient.

    Args:
      leaves: {name: [workers, ...]}, as `gradients.load` returns them.
    """
    shapes = [x.shape[1:] for x in leaves.values()]
    whole = np.concatenate([x.reshape(len(x), -1) for x in leaves.values()], axis=1)
    workers = {"error_gradient": [jnp.asarray(x, jnp.float32) for x in whole]}
    made = [(spec, catalog.make("compressors", spec)) for spec in specs]
    return [_row(spec, c, workers, runs, shapes) for spec, c in made]


def _drawn(elements: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    normal = jnp.asarray(rng.standard_normal(elements), jnp.float32)
    heavy = jnp.asarray(rng.standard_t(HEAVY_DOF, elements), jnp.float32)
    return {"error_normal": [normal], "error_heavy": [heavy]}


def _row(
    spec: str,
    compressor: Compressor,
    samples: Mapping[str, list[Any]],
    runs: int,
    shapes: Sequence[tuple[int, ...]] = (),
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    normal = next(iter(samples.values()))[0]
    elements = normal.size
    keys = jax.random.key(0) if compressor.key else None

    def pieces(x: Any) -> list[Any]:
        if compressor.scope == "flat" or not shapes:
            return [x]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [p.reshape(s) for p, s in zip(jnp.split(x, ends), shapes, strict=True)]

    def key(index: int) -> Any:
        return keys if keys is None or not index else jax.random.fold_in(keys, index)

    states = [compressor.init(p) for p in pieces(normal)]

    def compress(x: Any) -> Any:
        return [compressor.compress(p, states[i], key(i))[0] for i, p in enumerate(pieces(x))]

    def decompress(payload: Any) -> Any:
        like = pieces(normal)
        out = [compressor.decompress(p, like[i], key(i)) for i, p in enumerate(payload)]
        return out[0] if len(out) == 1 else jnp.concatenate([x.reshape(-1) for x in out])

    packing, unpacking = jax.jit(compress), jax.jit(decompress)
    copying = jax.jit(copied)
    errors = {}
    for name, xs in samples.items():
        decoded = [np.asarray(unpacking(packing(x)), np.float64).reshape(-1) for x in xs]
        each = [relative_error(np.asarray(x), y) for x, y in zip(xs, decoded, strict=True)]
        errors[name] = float(np.mean(each))
        if name == "error_gradient":
            mean = np.mean([np.asarray(x, np.float64) for x in xs], axis=0)
            errors["error_mean"] = relative_error(mean, np.mean(decoded, axis=0))
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
