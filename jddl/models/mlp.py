"""A multi-layer perceptron."""

from __future__ import annotations

import math
from typing import Any

from flax import nnx

from jddl.models._nnx import chain_model
from jddl.records import Model

EXAMPLES = ("mlp(hidden=16)",)


class _Dense(nnx.Module):
    def __init__(self, inputs: int, outputs: int, relu: bool, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)
        self.relu = relu

    def __call__(self, x: Any) -> Any:
        x = self.linear(x.reshape(x.shape[0], -1))  # [b, outputs]
        return nnx.relu(x) if self.relu else x


def mlp(inputs: tuple[int, ...], outputs: int, hidden: int = 64, layers: int = 1) -> Model:
    """Linear + ReLU from the flattened input, `layers` hidden blocks, and a linear head.

    Args:
      inputs: shape of one example (given by the task).
      outputs: width of the output (given by the task).
      hidden: width of the hidden layers.
      layers: number of hidden-to-hidden blocks.
    """
    return chain_model(
        embed=lambda rngs: _Dense(math.prod(inputs), hidden, True, rngs),
        block=lambda rngs: _Dense(hidden, hidden, True, rngs),
        num_blocks=layers,
        head=lambda rngs: _Dense(hidden, outputs, False, rngs),
    )
