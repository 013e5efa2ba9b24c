"""Compress, exchange, average; what is lost is lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from jddl.aggregators._exchange import check_all_reduce, exchange, units
from jddl.aggregators._lists import encode, pieces
from jddl.records import Aggregator, Compressor, OnLists
from jddl.trees import Local

EXAMPLES = (
    "compressed(identity)",
    "compressed(int8(stochastic=True))",
    "compressed(topk(ratio=0.1))",
)


class CompressedState(NamedTuple):
    """step: int32 counter (replicated); compressor: its states, one a compressed array."""

    step: Any
    compressor: Any


def compressed(
    compressor: Compressor,
    axis: str | tuple[str, ...] = "data",
    all_reduce: str = "native",
    seed: int = 0,
) -> Aggregator:
    """g <- (1/n) sum_i C(g_i), without memory: right for unbiased compressors.

    Args:
      compressor: from the compressors shelf.
      axis: mesh axis (or axes) of the data-parallel workers.
      all_reduce: carries payloads that may be added; others are all-gathered.
      seed: of the compressor's random numbers.

    Raises:
      ValueError: an `all_reduce` for a compressor whose payloads are gathered.
    """
    check_all_reduce(compressor, all_reduce)

    def init(params: Any) -> CompressedState:
        xs, _ = units(compressor, params)
        return CompressedState(jnp.zeros((), jnp.int32), Local([compressor.init(x) for x in xs]))

    def update(updates: Any, state: CompressedState, params: Any = None, **extra: Any) -> Any:
        xs, restore = units(compressor, updates)
        means, _, states = exchange(
            compressor, xs, state.compressor.value, state.step, seed, axis, all_reduce
        )
        return restore(means), CompressedState(state.step + 1, Local(states))

    return optax.GradientTransformationExtraArgs(init, update)


def on_lists(compressor: Compressor, seed: int = 0) -> OnLists:
    """(1/n) sum_i C(g_i) with one compressor state a worker."""

    def init(params: Any, n: int) -> Any:
        return [[compressor.init(x) for x in pieces(compressor, params)[0]] for _ in range(n)]

    def update(gradients: list[Any], state: Any, step: int) -> tuple[list[Any], Any]:
        _, restore = pieces(compressor, gradients[0])
        xs = [pieces(compressor, g)[0] for g in gradients]
        agreed, _, state = encode(compressor, xs, state, step, seed)
        return [restore(agreed)] * len(gradients), state

    return OnLists(init, update)
