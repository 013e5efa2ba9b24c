"""A decoder-only transformer in three parts, for every form that `_presets.Shape` describes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from jddl.models._attention import attention, rotate
from jddl.models._dropout import dropout
from jddl.models._experts import Experts
from jddl.models._nnx import chain_model
from jddl.models._presets import Shape
from jddl.records import Context, Model

EPSILON = 1e-5
_normal = nnx.initializers.normal(0.02, jnp.float32)


class _Norm(nnx.Module):
    """Layer norm, (x - m) / sqrt(v + 1e-5) * scale + bias; RMS norm, x / sqrt(v + 1e-5) * scale.

    Over the last dimension, in float32 at least; v is the mean of (x - m)^2, or of x^2.
    """

    def __init__(self, width: int, kind: str, rngs: nnx.Rngs) -> None:
        del rngs
        self.scale = nnx.Param(jnp.ones(width, jnp.float32))
        self.bias = nnx.data(nnx.Param(jnp.zeros(width, jnp.float32)) if kind == "layer" else None)

    def __call__(self, x: Any) -> Any:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        if self.bias is not None:
            wide = wide - jnp.mean(wide, -1, keepdims=True)
        wide = wide * lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + EPSILON)
        out = wide * self.scale[...]
        return (out if self.bias is None else out + self.bias[...]).astype(x.dtype)


class _Embed(nnx.Module):
    def __init__(
        self, vocabulary: int, length: int, shape: Shape, drop: float, rngs: nnx.Rngs
    ) -> None:
        self.table = nnx.Param(_normal(rngs.params(), (vocabulary, shape.width)))
        learned = shape.positions == "learned"
        self.positions = nnx.data(
            nnx.Param(_normal(rngs.params(), (length, shape.width))) if learned else None
        )
        self.drop = drop

    def __call__(self, tokens: Any, ctx: Context) -> Any:
        x = self.table[...][tokens]  # [b, s, width]
        if self.positions is not None:
            x = x + self.positions[...][: tokens.shape[1]]
        return dropout(x, self.drop, ctx)


class _Attention(nnx.Module):
    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        self.size = shape.width // shape.heads
        linear = partial(nnx.Linear, use_bias=shape.bias, rngs=rngs)
        self.query = linear(shape.width, shape.width, kernel_init=_normal)
        self.key = linear(shape.width, shape.kv_heads * self.size, kernel_init=_normal)
        self.value = linear(shape.width, shape.kv_heads * self.size, kernel_init=_normal)
        self.output = linear(shape.width, shape.width, kernel_init=_last(shape))
        self.theta = shape.theta if shape.positions == "rope" else 0.0

    def __call__(self, x: Any) -> Any:
        split = lambda y: y.reshape(*y.shape[:2], -1, self.size)  # noqa: E731
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        if self.theta:
            q, k = rotate(q, self.theta), rotate(k, self.theta)
        return self.output(attention(q, k, v, causal=True).reshape(x.shape))


class _FeedForward(nnx.Module):
    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        linear = partial(nnx.Linear, use_bias=shape.bias, rngs=rngs)
        self.up = linear(shape.width, shape.hidden, kernel_init=_normal)
        gated = shape.activation == "swiglu"
        self.gate = nnx.data(
            linear(shape.width, shape.hidden, kernel_init=_normal) if gated else None
        )
        self.down = linear(shape.hidden, shape.width, kernel_init=_last(shape))

    def __call__(self, x: Any) -> Any:
        up = self.up(x)
        up = jax.nn.gelu(up) if self.gate is None else jax.nn.silu(self.gate(x)) * up
        return self.down(up)


class _Block(nnx.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)) or x + experts(norm(x))."""

    def __init__(
        self, shape: Shape, drop: float, capacity_factor: float, penalty: float, rngs: nnx.Rngs
    ) -> None:
        self.norm1 = _Norm(shape.width, shape.norm, rngs)
        self.attention = _Attention(shape, rngs)
        self.norm2 = _Norm(shape.width, shape.norm, rngs)
        self.feed_forward: Any = (
            Experts(shape, capacity_factor, penalty, rngs)
            if shape.experts
            else _FeedForward(shape, rngs)
        )
        self.drop = drop

    def __call__(self, x: Any, ctx: Context) -> Any:
        x = x + dropout(self.attention(self.norm1(x)), self.drop, ctx.within("attention"))
        y = self.norm2(x)
        if isinstance(self.feed_forward, Experts):
            y, aux = self.feed_forward(y, ctx)
        else:
            y, aux = self.feed_forward(y), {}
        return x + dropout(y, self.drop, ctx.within("feed forward")), aux


class _Head(nnx.Module):
    def __init__(self, vocabulary: int, shape: Shape, rngs: nnx.Rngs) -> None:
        self.norm = _Norm(shape.width, shape.norm, rngs)
        self.table = nnx.Param(_normal(rngs.params(), (vocabulary, shape.width)))

    def __call__(self, x: Any, ctx: Context) -> Any:
        return self.norm(x) @ self.table[...].T  # [b, s, vocabulary]


def decoder(
    inputs: tuple[int, ...],
    vocabulary: int,
    shape: Shape,
    drop: float,
    capacity_factor: float = 0.0,
    penalty: float = 0.0,
) -> Model:
    """The Model of a shape, for i32[b, s] tokens with s up to inputs[0].

    Raises:
      ValueError: inputs that are no sequence; a drop rate outside [0, 1).
    """
    if len(inputs) != 1:
        raise ValueError(f"a transformer reads sequences [length], not inputs of {inputs}")
    if not 0 <= drop < 1:
        raise ValueError(f"drop is in [0, 1), not {drop}")
    return chain_model(
        embed=lambda rngs: _Embed(vocabulary, inputs[0], shape, drop, rngs),
        block=lambda rngs: _Block(shape, drop, capacity_factor, penalty, rngs),
        num_blocks=shape.layers,
        head=lambda rngs: _Head(vocabulary, shape, rngs),
        tied=("table",) if shape.tied else (),
    )


def _last(shape: Shape) -> Any:
    """Of the layers that add to the residual stream: GPT-2 scales them by 1 / sqrt(2 layers)."""
    return nnx.initializers.normal(0.02 / math.sqrt(2 * max(shape.layers, 1)))
