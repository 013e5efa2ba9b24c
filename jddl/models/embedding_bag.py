"""One large embedding table and a small network on the sum of the rows it looks up."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = ("embedding_bag(vocabulary=60, width=4)",)


class _Bag(nnx.Module):
    def __init__(self, vocabulary: int, width: int, rngs: nnx.Rngs) -> None:
        scale = width**-0.5
        self.table = nnx.Param(
            scale * jax.random.normal(rngs.params(), (vocabulary, width), jnp.float32)
        )

    def __call__(self, x: Any, ctx: Context) -> Any:
        rows = jnp.take(self.table[...], x, axis=0)  # [b, fields, width]
        return rows.sum(axis=1)


class _Layer(nnx.Module):
    def __init__(self, inputs: int, outputs: int, relu: bool, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)
        self.relu = relu

    def __call__(self, x: Any, ctx: Context) -> Any:
        return nnx.relu(self.linear(x)) if self.relu else self.linear(x)


def embedding_bag(
    inputs: tuple[int, ...], outputs: int, vocabulary: int, width: int = 16, layers: int = 1
) -> Model:
    """h = sum_f E[id_f], `layers` blocks relu(W h + b), and a linear head.

    The gradient of E is zero in every row that the batch does not name: with a large vocabulary
    nearly all of the gradient is zeros, which is what sparse exchanges are for.

    Args:
      inputs: (fields,), the ids of one example (given by the task); ids are i32[b, fields].
      outputs: width of the output (given by the task).
      vocabulary: number of rows of E (given by the task).
      width: of a row, and of the hidden layers.
      layers: number of hidden blocks.

    Raises:
      ValueError: inputs that are no list of ids; arguments out of range.

    Reference: Naumov et al., "Deep learning recommendation model for personalization and
    recommendation systems", 2019. Differences: rows are summed, without pairwise products, and
    there is one table for all fields.
    """
    if len(inputs) != 1:
        raise ValueError(f"embedding_bag takes a list of ids an example, not inputs of {inputs}")
    if vocabulary < 1 or width < 1 or layers < 0:
        raise ValueError(
            f"vocabulary and width are at least 1 and layers 0, not {vocabulary}, {width} "
            f"and {layers}"
        )
    return chain_model(
        embed=lambda rngs: _Bag(vocabulary, width, rngs),
        block=lambda rngs: _Layer(width, width, True, rngs),
        num_blocks=layers,
        head=lambda rngs: _Layer(width, outputs, False, rngs),
    )
