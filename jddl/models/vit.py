"""A vision transformer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jddl.models._attention import attention
from jddl.models._draws import normal
from jddl.models._dropout import dropout
from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = (
    "vit(heads=2, layers=1, width=8)",
    "vit(drop=0.5, heads=2, layers=2, pool='mean', width=8)",
)
POOLS = ("token", "mean")
LECUN_NORMAL = normal()


def _linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, kernel_init=LECUN_NORMAL, rngs=rngs)


def _norm(width: int, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(width, epsilon=1e-6, use_fast_variance=False, rngs=rngs)


class _Embed(nnx.Module):
    def __init__(
        self,
        inputs: tuple[int, ...],
        patch: int,
        width: int,
        token: bool,
        drop: float,
        rngs: nnx.Rngs,
    ) -> None:
        height, long, channels = inputs
        self.patch, self.drop = patch, drop
        self.linear = _linear(patch * patch * channels, width, rngs)
        length = height // patch * (long // patch) + token
        self.positions = nnx.Param(
            0.02 * jax.random.normal(rngs.params(), (length, width), jnp.float32)
        )
        self.token: Any = None
        if token:
            self.token = nnx.data(nnx.Param(jnp.zeros(width, jnp.float32)))

    def __call__(self, x: Any, ctx: Context) -> Any:
        b, height, long, channels = x.shape
        p = self.patch
        x = x.reshape(b, height // p, p, long // p, p, channels).swapaxes(2, 3)
        x = self.linear(x.reshape(b, -1, p * p * channels))  # [b, patches, width]
        if self.token is not None:
            first = jnp.broadcast_to(self.token[...].astype(x.dtype), (b, 1, x.shape[-1]))
            x = jnp.concatenate([first, x], axis=1)
        return dropout(x + self.positions[...].astype(x.dtype), self.drop, ctx)


class _Block(nnx.Module):
    def __init__(self, width: int, heads: int, hidden: int, drop: float, rngs: nnx.Rngs) -> None:
        self.heads, self.drop = heads, drop
        self.attention_norm = _norm(width, rngs)
        self.qkv = _linear(width, 3 * width, rngs)
        self.out = _linear(width, width, rngs)
        self.mlp_norm = _norm(width, rngs)
        self.up = _linear(width, hidden, rngs)
        self.down = _linear(hidden, width, rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        b, s, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).reshape(b, s, 3, self.heads, width // self.heads)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        mixed = attention(q, k, v, causal=False).reshape(b, s, width)
        x = x + dropout(self.out(mixed), self.drop, ctx.within("attention"))
        wide = dropout(nnx.gelu(self.up(self.mlp_norm(x)), False), self.drop, ctx.within("hidden"))
        return x + dropout(self.down(wide), self.drop, ctx.within("mlp"))


class _Head(nnx.Module):
    def __init__(self, width: int, outputs: int, pool: str, rngs: nnx.Rngs) -> None:
        self.norm = _norm(width, rngs)
        self.linear = _linear(width, outputs, rngs)
        self.pool = pool

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = self.norm(x)
        return self.linear(x[:, 0] if self.pool == "token" else x.mean(1))


def vit(
    inputs: tuple[int, ...],
    outputs: int,
    patch: int = 2,
    width: int = 32,
    layers: int = 2,
    heads: int = 4,
    hidden: int | None = None,
    pool: str = "token",
    drop: float = 0.0,
) -> Model:
    """An image as a sentence of patches: x += attention(norm(x)); x += mlp(norm(x)) in each block.

    A patch of p x p pixels is one vector, mapped linearly to `width`; learned positions are added.
    The head normalises and maps one vector of an image linearly to the classes. With patch=16,
    width=768, layers=12, heads=12 on images of 224 x 224 x 3 and 1,000 classes it has 86,567,656
    parameters (ViT-B/16).

    Args:
      inputs: (height, width, channels) of one example (given by the task).
      outputs: number of classes (given by the task).
      patch: side of a patch in pixels; divides height and width.
      width: of every patch's vector.
      layers: number of blocks.
      heads: of each attention; divides the width.
      hidden: width inside a block's mlp (GELU); where it is left out, 4 times `width`.
      pool: what the head reads: 'token', a learned vector put before the patches, or 'mean'.
      drop: share of numbers dropped in training: after the positions and each part of a block, and
        inside the mlp.

    Raises:
      ValueError: inputs that are no images, or not divided by the patch; heads that do not divide
        the width; an unknown pool; drop outside [0, 1); a size below 1.

    Reference: Dosovitskiy et al., "An image is worth 16x16 words: transformers for image
    recognition at scale", 2021.

    Differences from the paper: a small default; weights start as N(0, 1 / fan in), the head's too;
    q, k and v are one map (its bias, part of which nothing depends on, is one leaf).
    """
    if len(inputs) != 3:
        raise ValueError(f"vit wants images [height, width, channels], not inputs of {inputs}")
    hidden = 4 * width if hidden is None else hidden
    if min(patch, width, heads, hidden) < 1 or layers < 0:
        raise ValueError(
            "vit: patch, width, heads and hidden are at least 1 and layers 0, not "
            f"{patch}, {width}, {heads}, {hidden} and {layers}"
        )
    if inputs[0] % patch or inputs[1] % patch:
        raise ValueError(f"vit: patch={patch} does not divide images of {inputs[0]} x {inputs[1]}")
    if width % heads:
        raise ValueError(f"vit: heads={heads} does not divide width={width}")
    if pool not in POOLS:
        raise ValueError(f"vit: pool is one of {', '.join(POOLS)}, not {pool!r}")
    if not 0 <= drop < 1:
        raise ValueError(f"vit: drop is in [0, 1), not {drop}")
    return chain_model(
        embed=lambda rngs: _Embed(inputs, patch, width, pool == "token", drop, rngs),
        block=lambda rngs: _Block(width, heads, hidden, drop, rngs),
        num_blocks=layers,
        head=lambda rngs: _Head(width, outputs, pool, rngs),
    )
