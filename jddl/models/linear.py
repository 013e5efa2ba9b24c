"""A linear model."""

from __future__ import annotations

import math
from typing import Any

from flax import nnx

from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = ("linear",)


class _Flatten(nnx.Module):
    def __call__(self, x: Any, ctx: Context) -> Any:
        return x.reshape(x.shape[0], -1)


class _Identity(nnx.Module):
    def __call__(self, x: Any, ctx: Context) -> Any:
        return x


class _Head(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        zeros = nnx.initializers.zeros_init()
        self.linear = nnx.Linear(inputs, outputs, kernel_init=zeros, rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        return self.linear(x)


def linear(inputs: tuple[int, ...], outputs: int) -> Model:
    """W x + b, started at zero: convex with convex losses.

    Args:
      inputs: shape of one example (given by the task).
      outputs: width of the output (given by the task).
    """

    head = lambda rngs: _Head(math.prod(inputs), outputs, rngs)  # noqa: E731
    return chain_model(lambda rngs: _Flatten(), lambda rngs: _Identity(), 0, head)
