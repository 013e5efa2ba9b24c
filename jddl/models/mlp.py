"""A multi-layer perceptron."""

from __future__ import annotations

import math
from typing import Any

from flax import nnx

from jddl.models._dropout import dropout
from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = ("mlp(hidden=16)", "mlp(drop=0.5, hidden=16)")


class _Dense(nnx.Module):
    def __init__(
        self, inputs: int, outputs: int, relu: bool, rngs: nnx.Rngs, drop: float = 0.0
    ) -> None:
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)
        self.relu, self.drop = relu, drop

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = self.linear(x.reshape(x.shape[0], -1))  # [b, outputs]
        return dropout(nnx.relu(x), self.drop, ctx) if self.relu else x


def mlp(
    inputs: tuple[int, ...], outputs: int, hidden: int = 64, layers: int = 1, drop: float = 0.0
) -> Model:
    """Linear + ReLU from the flattened input, `layers` hidden blocks, and a linear head.

    Args:
      inputs: shape of one example (given by the task).
      outputs: width of the output (given by the task).
      hidden: width of the hidden layers.
      layers: number of hidden-to-hidden blocks.
      drop: share of the hidden units dropped after each ReLU in training.

    Raises:
      ValueError: drop outside [0, 1).
    """
    if hidden < 1 or layers < 0:
        raise ValueError(f"hidden is at least 1 and layers 0, not {hidden} and {layers}")
    if not 0 <= drop < 1:
        raise ValueError(f"drop is in [0, 1), not {drop}")
    return chain_model(
        embed=lambda rngs: _Dense(math.prod(inputs), hidden, True, rngs, drop),
        block=lambda rngs: _Dense(hidden, hidden, True, rngs, drop),
        num_blocks=layers,
        head=lambda rngs: _Dense(hidden, outputs, False, rngs),
    )
