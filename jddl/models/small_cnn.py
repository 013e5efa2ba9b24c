"""A small convolutional network."""

from __future__ import annotations

from typing import Any

from flax import nnx

from jddl.models._nnx import chain_model
from jddl.models._norms import check_norm, normalisation
from jddl.records import Context, Model

EXAMPLES = (
    "small_cnn(channels=4)",
    "small_cnn(channels=4, norm='batch')",
    "small_cnn(channels=4, groups=2, norm='group')",
)


class _Convolution(nnx.Module):
    def __init__(self, inputs: int, outputs: int, norm: str, groups: int, rngs: nnx.Rngs) -> None:
        # batch normalisation subtracts the mean: a bias before it would have no gradient
        bias = norm != "batch"
        self.convolution = nnx.Conv(inputs, outputs, (3, 3), use_bias=bias, rngs=rngs)
        self.norm = normalisation(norm, outputs, groups, rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = self.convolution(x)  # [b, h, w, channels]
        return nnx.relu(x if self.norm is None else self.norm(x, ctx))


class _Head(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = nnx.avg_pool(x, (2, 2), strides=(2, 2))
        return self.linear(x.reshape(x.shape[0], -1))


def small_cnn(
    inputs: tuple[int, ...],
    outputs: int,
    channels: int = 16,
    layers: int = 1,
    norm: str = "none",
    groups: int = 0,
) -> Model:
    """3 x 3 convolutions with ReLU at full size, 2 x 2 average pooling, a linear head.

    Args:
      inputs: (height, width, channels) of one example (given by the task), even sizes.
      outputs: number of classes (given by the task).
      channels: width of every convolution.
      layers: number of convolutions after the first.
      norm: between each convolution and its ReLU: 'none', 'batch' (over the batch of all workers;
        with accumulate=k over each micro-batch of all workers) or 'group'.
      groups: groups of channels, for norm='group' only.

    Raises:
      ValueError: inputs that are no images of even size; an unknown norm; groups that do not
        divide the channels, or that nothing uses.
    """
    if channels < 1 or layers < 0:
        raise ValueError(f"channels is at least 1 and layers 0, not {channels} and {layers}")
    check_norm("small_cnn", norm, groups, "channels", channels)
    if len(inputs) != 3 or inputs[0] % 2 or inputs[1] % 2:
        raise ValueError(f"small_cnn wants images [even, even, channels], not inputs of {inputs}")
    height, width, depth = inputs
    return chain_model(
        embed=lambda rngs: _Convolution(depth, channels, norm, groups, rngs),
        block=lambda rngs: _Convolution(channels, channels, norm, groups, rngs),
        num_blocks=layers,
        head=lambda rngs: _Head(height // 2 * (width // 2) * channels, outputs, rngs),
    )
