"""Error feedback: what a compressor drops is sent later."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from jddl.aggregators._exchange import check_all_reduce, exchange, units
from jddl.aggregators._lists import encode, pieces
from jddl.records import Aggregator, Compressor, OnLists
from jddl.trees import Local

EXAMPLES = ("error_feedback(topk(ratio=0.01))", "error_feedback(int8)", "error_feedback(identity)")


class ErrorFeedbackState(NamedTuple):
    """step: int32 counter; memory: e_i, a worker's own; compressor: a worker's own states."""

    step: Any
    memory: Any
    compressor: Any


def error_feedback(
    compressor: Compressor,
    axis: str | tuple[str, ...] = "data",
    all_reduce: str = "native",
    seed: int = 0,
) -> Aggregator:
    """p_i = g_i + e_i, g <- (1/n) sum_i C(p_i), e_i <- p_i - C(p_i).

    On every worker: what was sent plus what is left equals what came in, sum_t C(p_t) + e_T =
    sum_t g_t. What is still to be sent is (1/n) sum_i e_i, so on another number of workers every
    new one starts with the mean of the old memories.

    Args:
      compressor: from the compressors shelf, usually a biased one.
      axis: mesh axis (or axes) of the data-parallel workers.
      all_reduce: carries payloads that may be added; others are all-gathered.
      seed: of the compressor's random numbers.

    Raises:
      ValueError: an `all_reduce` for a compressor whose payloads are gathered.

    References: Seide et al., "1-bit stochastic gradient descent", 2014; Karimireddy et al., "Error
    feedback fixes SignSGD", 2019. Difference from the latter: the memory holds gradients, not
    gradients times the learning rate, so it composes with any optimiser.
    """
    check_all_reduce(compressor, all_reduce)

    def init(params: Any) -> ErrorFeedbackState:
        xs, _ = units(compressor, params)
        memory = Local([jnp.zeros_like(x) for x in xs], rule="mean")
        states = Local([compressor.init(x) for x in xs])
        return ErrorFeedbackState(jnp.zeros((), jnp.int32), memory, states)

    def update(updates: Any, state: ErrorFeedbackState, params: Any = None, **extra: Any) -> Any:
        xs, restore = units(compressor, updates)
        xs = [x + e for x, e in zip(xs, state.memory.value, strict=True)]
        means, owns, states = exchange(
            compressor, xs, state.compressor.value, state.step, seed, axis, all_reduce
        )
        memory = Local([x - own for x, own in zip(xs, owns, strict=True)], rule="mean")
        return restore(means), ErrorFeedbackState(state.step + 1, memory, Local(states))

    return optax.GradientTransformationExtraArgs(init, update)


def on_lists(compressor: Compressor, seed: int = 0) -> OnLists:
    """p_i = g_i + e_i, agreed = (1/n) sum_i C(p_i), e_i <- p_i - C(p_i), worker by worker."""

    def init(params: Any, n: int) -> Any:
        xs, _ = pieces(compressor, params)
        states = [[compressor.init(x) for x in xs] for _ in range(n)]
        return [[0.0 * x for x in xs] for _ in range(n)], states

    def update(gradients: list[Any], state: Any, step: int) -> tuple[list[Any], Any]:
        memories, states = state
        _, restore = pieces(compressor, gradients[0])
        sums = [
            [g + e for g, e in zip(pieces(compressor, tree)[0], memory, strict=True)]
            for tree, memory in zip(gradients, memories, strict=True)
        ]
        agreed, own, states = encode(compressor, sums, states, step, seed)
        memories = [
            [p - sent for p, sent in zip(mine, decoded, strict=True)]
            for mine, decoded in zip(sums, own, strict=True)
        ]
        return [restore(agreed)] * len(gradients), (memories, states)

    return OnLists(init, update)
