"""How a compressed tree is exchanged: shared by the aggregators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jddl import accounting
from jddl.collectives._api import all_reduce
from jddl.collectives._bits import moved
from jddl.collectives._execute import Axis
from jddl.records import Compressor
from jddl.trees import ravel


def check_all_reduce(compressor: Compressor, all_reduce_spec: str) -> None:
    """A collective that nothing would use is an error."""
    if compressor.combine == "gather" and all_reduce_spec != "native":
        raise ValueError(
            f"all_reduce={all_reduce_spec!r} has no effect: this compressor's payloads cannot be "
            "added, so they are gathered; all_reduce belongs to summing exchanges"
        )


def mean_over(tree: Any, axis: Axis, via: str) -> Any:
    """(1/n) sum_i x_i. float16 is divided first: its sum passes 65,504 where the mean does not."""
    n = lax.axis_size(axis)
    early = lambda x: x.dtype == jnp.float16  # noqa: E731
    total = all_reduce(jax.tree.map(lambda x: x / n if early(x) else x, tree), axis, via)
    return jax.tree.map(lambda x: x if early(x) else x / n, total)


def units(compressor: Compressor, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays that are compressed one by one (by scope), and the inverse."""
    if compressor.scope == "flat":
        vectors, unravel = ravel(tree)
        names = list(vectors)
        return [vectors[k] for k in names], lambda xs: unravel(dict(zip(names, xs, strict=True)))
    leaves, structure = jax.tree.flatten(tree)
    return leaves, lambda xs: jax.tree.unflatten(structure, xs)


def exchange(
    compressor: Compressor,
    xs: list[Any],
    states: list[Any],
    step: Any,
    seed: int,
    axis: Axis,
    via: str,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Compress, send, decode, average.

    Returns (mean over workers, what this worker's own payload decodes to, new states), each a list
    like xs.
    """
    means, owns, new_states = [], [], []
    for index, (x, state) in enumerate(zip(xs, states, strict=True)):
        key = _key(compressor, seed, step, index, axis)
        payload, state = compressor.compress(x, state, key)
        owns.append(compressor.decompress(payload, x, key))
        if compressor.combine == "sum":
            means.append(_summed_mean(compressor, payload, x, key, axis, via))
        else:
            means.append(_gathered_mean(compressor, payload, x, axis))
        new_states.append(state)
    return means, owns, new_states


def _summed_mean(
    compressor: Compressor, payload: Any, like: Any, key: Any, axis: Axis, via: str
) -> Any:
    """Add the payloads, decode the sum; decoding is linear, so float16 may be divided first."""
    if all(x.dtype == jnp.float16 for x in jax.tree.leaves(payload)):
        return compressor.decompress(mean_over(payload, axis, via), like, key)
    return compressor.decompress(all_reduce(payload, axis, via), like, key) / lax.axis_size(axis)


def _gathered_mean(compressor: Compressor, payload: Any, like: Any, axis: Axis) -> Any:
    """All-gather the payloads and add the decoded ones in rank order (bit-identical replicas)."""
    with accounting.exchange():
        gather = lambda p: moved(lambda bits: lax.all_gather(bits, axis), accounting.payload(p))  # noqa: E731
        everyone = jax.tree.map(gather, payload)
    decode = lambda total, p: (total + compressor.decompress(p, like), None)  # noqa: E731
    wide = jnp.zeros(like.shape, jnp.promote_types(like.dtype, jnp.float32))
    return (lax.scan(decode, wide, everyone)[0] / lax.axis_size(axis)).astype(like.dtype)


def _key(compressor: Compressor, seed: int, step: Any, index: int, axis: Axis) -> Any:
    if compressor.key is None:
        return None
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), index)
    return key if compressor.key == "shared" else jax.random.fold_in(key, lax.axis_index(axis))
