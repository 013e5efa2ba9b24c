"""A linear model."""

from __future__ import annotations

import math
from typing import Any

from flax import nnx

from jddl.models._nnx import chain_model
from jddl.records import Model

EXAMPLES = ("linear",)


class _Flatten(nnx.Module):
    def __call__(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)


class _Identity(nnx.Module):
    def __call__(self, x: Any) -> Any:
        return x


def linear(inputs: tuple[int, ...], outputs: int) -> Model:
    """W x + b, started at zero: convex with convex losses.

    Args:
      inputs: shape of one example (given by the task).
      outputs: width of the output (given by the task).
    """

    def head(rngs: nnx.Rngs) -> nnx.Linear:
        zeros = nnx.initializers.zeros_init()
        return nnx.Linear(math.prod(inputs), outputs, kernel_init=zeros, rngs=rngs)

    return chain_model(lambda rngs: _Flatten(), lambda rngs: _Identity(), 0, head)
