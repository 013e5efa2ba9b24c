"""A residual network for small images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from flax import nnx

from jddl.models._draws import normal
from jddl.models._nnx import chain_model
from jddl.models._norms import check_norm, normalisation
from jddl.records import Context, Model

EXAMPLES = (
    "resnet(stages=[1, 1], width=4)",
    "resnet(groups=2, norm='group', stages=[1, 1], width=4)",
    "resnet(norm='none', stages=[2], stem_stride=2, width=4)",
)
STAGES = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # layers -> blocks a stage
HE_NORMAL, LECUN_NORMAL = normal(2.0), normal(1.0)


class _Convolution(nnx.Module):
    """Convolution with zeros around, then the normalisation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        stride: int,
        norm: str,
        groups: int,
        rngs: nnx.Rngs,
    ) -> None:
        self.convolution = nnx.Conv(
            inputs,
            outputs,
            (size, size),
            strides=stride,
            padding=size // 2,
            use_bias=norm != "batch",  # batch normalisation subtracts the mean, and so a bias
            kernel_init=HE_NORMAL,
            rngs=rngs,
        )
        self.norm = normalisation(norm, outputs, groups, rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = self.convolution(x)  # [b, ceil(h / stride), ceil(w / stride), outputs]
        return x if self.norm is None else self.norm(x, ctx)


class _Stem(nnx.Module):
    def __init__(
        self, inputs: int, outputs: int, stride: int, norm: str, groups: int, rngs: nnx.Rngs
    ) -> None:
        self.first = _Convolution(inputs, outputs, 3, stride, norm, groups, rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        return nnx.relu(self.first(x, ctx))


class _Block(nnx.Module):
    def __init__(
        self, inputs: int, outputs: int, stride: int, norm: str, groups: int, rngs: nnx.Rngs
    ) -> None:
        self.first = _Convolution(inputs, outputs, 3, stride, norm, groups, rngs)
        self.second = _Convolution(outputs, outputs, 3, 1, norm, groups, rngs)
        self.shortcut: Any = None
        if stride > 1 or inputs != outputs:
            self.shortcut = nnx.data(_Convolution(inputs, outputs, 1, stride, norm, groups, rngs))

    def __call__(self, x: Any, ctx: Context) -> Any:
        residual = self.second(nnx.relu(self.first(x, ctx)), ctx)
        return nnx.relu(residual + (x if self.shortcut is None else self.shortcut(x, ctx)))


class _Head(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(inputs, outputs, kernel_init=LECUN_NORMAL, rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        return self.linear(x.mean((1, 2)))


def resnet(
    inputs: tuple[int, ...],
    outputs: int,
    layers: int | None = None,
    stages: Sequence[int] | None = None,
    width: int = 64,
    norm: str = "batch",
    groups: int = 0,
    stem_stride: int = 1,
) -> Model:
    """Blocks y = relu(x + N(conv(relu(N(conv(x)))))) of 3 x 3 convolutions, N the normalisation.

    A stem (3 x 3 convolution, N, ReLU), stages of blocks, the mean over all positions, a linear
    head. Stage i (from 0) has width 2^i channels; from the second on, its first block halves the
    image (stride 2), and its x passes a 1 x 1 convolution of the same stride and N. With layers=18
    on images of 32 x 32 x 3 and 10 classes it has 11,173,962 parameters.

    Args:
      inputs: (height, width, channels) of one example (given by the task).
      outputs: number of classes (given by the task).
      layers: 10, 18 (where neither this nor `stages` is given) or 34: four stages.
      stages: blocks of each stage, instead of `layers`: [1, 1] has 6 layers with weights.
      width: channels of the stem and the first stage.
      norm: after each convolution: 'batch' (over the batch of all workers; with accumulate=k over
        each micro-batch of all workers), 'group' or 'none'.
      groups: groups of channels, for norm='group' only.
      stem_stride: of the stem's convolution; 2 makes a network of large images about 4 times
        cheaper.

    Raises:
      ValueError: inputs that are no images; layers without a preset, or beside stages; stages that
        are no list of positive numbers; an unknown norm; groups that do not divide the width, or
        that nothing uses.

    Reference: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2016.

    Differences from the paper: the stem for small images, without pooling, also with the four wide
    stages that the paper has for ImageNet; where a shape changes, a convolution is the shortcut
    (its option B) on small images too; convolutions have a bias unless norm='batch'.
    """
    blocks = _blocks_a_stage(layers, stages)
    if len(inputs) != 3:
        raise ValueError(f"resnet wants images [height, width, channels], not inputs of {inputs}")
    if width < 1 or stem_stride < 1:
        raise ValueError(
            f"resnet: width and stem_stride are at least 1, not {width} and {stem_stride}"
        )
    check_norm("resnet", norm, groups, "width", width)
    builders, channels = [], width
    for stage, count in enumerate(blocks):
        wide = width << stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            builders.append(partial(_block, channels, wide, stride, norm, groups))
            channels = wide
    return chain_model(
        embed=lambda rngs: _Stem(inputs[2], width, stem_stride, norm, groups, rngs),
        block=builders,
        num_blocks=len(builders),
        head=lambda rngs: _Head(channels, outputs, rngs),
    )


def _block(*arguments: Any) -> _Block:
    return _Block(*arguments)


def _blocks_a_stage(layers: int | None, stages: Sequence[int] | None) -> tuple[int, ...]:
    if stages is None:
        layers = 18 if layers is None else layers
        if layers not in STAGES:
            known = ", ".join(map(str, STAGES))
            raise ValueError(f"resnet: layers is one of {known}, not {layers}; or give stages")
        return STAGES[layers]
    if layers is not None:
        raise ValueError(f"resnet: layers={layers} has no effect beside stages={stages}")
    if not isinstance(stages, (list, tuple)) or not stages:
        raise ValueError(f"resnet: stages is a list such as [2, 2], not {stages!r}")
    if not all(type(count) is int and count > 0 for count in stages):
        raise ValueError(f"resnet: stages are blocks a stage, each at least 1, not {stages}")
    return tuple(stages)
