"""Losses and metrics that classification tasks share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from jddl.records import Context, Sums
from jddl.tasks._weights import weighted


def cross_entropy(outputs: Any, batch: Any, ctx: Context) -> tuple[Any, Any]:
    """(weighted sum of -log softmax(outputs)[label], sum of weights).

    outputs[b, ..., classes], labels[b, ...]: one label an example, or one a token.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, batch["labels"])
    return weighted(losses, batch)


def accuracy(outputs: Any, batch: Any, ctx: Context) -> Sums:
    """{'accuracy': (weighted number right, sum of weights)}."""
    right = jnp.argmax(outputs, -1) == batch["labels"]
    exact = jnp.promote_types(outputs.dtype, jnp.float32)  # half precision cannot count far
    return {"accuracy": weighted(right.astype(exact), batch)}


def shuffled(size: int, batch_size: int, step: int, seed: int) -> np.ndarray:
    """Indices of the global batch at a step: epochs are permutations drawn from (seed, epoch).

    Pure in its arguments and independent of the number of workers.
    """
    first, last = step * batch_size, (step + 1) * batch_size
    epochs = range(first // size, (last - 1) // size + 1)
    order = np.concatenate([_permutation(size, seed, epoch) for epoch in epochs])
    offset = epochs[0] * size
    return order[first - offset : last - offset]


@lru_cache(maxsize=8)
def _permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch; drawn once, not at each of its steps."""
    return np.random.default_rng([seed, epoch]).permutation(size)
