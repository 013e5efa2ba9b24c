"""A small convolutional network."""

from __future__ import annotations

from typing import Any

from flax import nnx

from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = ("small_cnn(channels=4)",)


class _Convolution(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.convolution = nnx.Conv(inputs, outputs, kernel_size=(3, 3), rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        return nnx.relu(self.convolution(x))  # [b, h, w, channels]


class _Head(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = nnx.avg_pool(x, (2, 2), strides=(2, 2))
        return self.linear(x.reshape(x.shape[0], -1))


def small_cnn(inputs: tuple[int, ...], outputs: int, channels: int = 16, layers: int = 1) -> Model:
    """3 x 3 convolutions with ReLU at full size, 2 x 2 average pooling, a linear head.

    Args:
      inputs: (height, width, channels) of one example (given by the task), even sizes.
      outputs: number of classes (given by the task).
      channels: width of every convolution.
      layers: number of convolutions after the first.

    Raises:
      ValueError: inputs that are no images of even size.
    """
    if channels < 1 or layers < 0:
        raise ValueError(f"channels is at least 1 and layers 0, not {channels} and {layers}")
    if len(inputs) != 3 or inputs[0] % 2 or inputs[1] % 2:
        raise ValueError(f"small_cnn wants images [even, even, channels], not inputs of {inputs}")
    height, width, depth = inputs
    return chain_model(
        embed=lambda rngs: _Convolution(depth, channels, rngs),
        block=lambda rngs: _Convolution(channels, channels, rngs),
        num_blocks=layers,
        head=lambda rngs: _Head(height // 2 * (width // 2) * channels, outputs, rngs),
    )
