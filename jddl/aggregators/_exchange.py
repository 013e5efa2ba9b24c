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
    n = lax.axis_size(axis)
    for index, (x, state) in enumerate(zip(xs, states, strict=True)):
        key = _key(compressor, seed, step, index, axis)
        payload, state = compressor.compress(x, state, key)
        owns.append(compressor.decompress(payload, x, key))
        if compressor.combine == "sum":
            total = compressor.decompress(all_reduce(payload, axis, via), x, key)
        else:
            total = _gathered_sum(compressor, payload, x, axis)
        means.append(total / n)
        new_states.append(state)
    return means, owns, new_states


def _gathered_sum(compressor: Compressor, payload: Any, like: Any, axis: Axis) -> Any:
    """All-gather the payloads and add the decoded ones in rank order (bit-identical replicas)."""
    with accounting.exchange():
        gather = lambda p: moved(lambda bits: lax.all_gather(bits, axis), accounting.payload(p))  # noqa: E731
        everyone = jax.tree.map(gather, payload)
    decode = lambda total, p: (total + compressor.decompress(p, like), None)  # noqa: E731
    return lax.scan(decode, jnp.zeros_like(like), everyone)[0]


def _key(compressor: Compressor, seed: int, step: Any, index: int, axis: Axis) -> Any:
    if compressor.key is None:
        return None
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), index)
    return key if compressor.key == "shared" else jax.random.fold_in(key, lax.axis_index(axis))
