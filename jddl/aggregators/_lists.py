"""Compression on an explicit list of workers: what the aggregators' `on_lists` forms share.

Nothing here communicates and nothing is taken from `_exchange`, so the two check each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from jddl.records import Compressor


def pieces(compressor: Compressor, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """What is compressed one by one: the whole tree as one vector, or its leaves."""
    if compressor.scope == "flat":
        vector, unravel = ravel_pytree(tree)
        return [vector], lambda xs: unravel(xs[0])
    leaves, structure = jax.tree.flatten(tree)
    return leaves, lambda xs: jax.tree.unflatten(structure, xs)


def encode(
    compressor: Compressor, xs: list[list[Any]], states: list[list[Any]], step: int, seed: int
) -> tuple[list[Any], list[list[Any]], list[list[Any]]]:
    """(the mean of the decoded pieces, what each worker's own decode to, new states).

    Args:
      xs, states: [worker][piece].
      seed: keys are folded from seed, step, piece and, where they differ, worker.
    """
    n, means = len(xs), []
    own: list[list[Any]] = [[] for _ in xs]
    after: list[list[Any]] = [[] for _ in xs]
    for piece in range(len(xs[0])):
        payloads = []
        for worker in range(n):
            key = None
            if compressor.key is not None:
                key = jax.random.key(seed)
                for number in (step, piece, worker)[: 3 if compressor.key == "per_worker" else 2]:
                    key = jax.random.fold_in(key, number)
            x = xs[worker][piece]
            payload, state = compressor.compress(x, states[worker][piece], key)
            payloads.append(payload)
            own[worker].append(compressor.decompress(payload, x, key))
            after[worker].append(state)
        if compressor.combine == "sum":
            total = jax.tree.map(lambda *leaves: sum(leaves), *payloads)
            means.append(compressor.decompress(total, xs[0][piece], key) / n)
        else:
            means.append(sum(decoded[piece] for decoded in own) / n)
    return means, own, after
