"""A recurrent language model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from jddl.models._draws import normal
from jddl.models._dropout import dropout
from jddl.models._nnx import chain_model
from jddl.records import Context, Model

EXAMPLES = ("lstm(width=8)", "lstm(drop=0.5, layers=2, width=8)")
LECUN_NORMAL = normal()


class _Embed(nnx.Module):
    def __init__(self, vocabulary: int, width: int, drop: float, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(
            0.1 * jax.random.normal(rngs.params(), (vocabulary, width), jnp.float32)
        )
        self.drop = drop

    def __call__(self, x: Any, ctx: Context) -> Any:
        return dropout(self.table[...][x], self.drop, ctx)  # [b, length, width]


class _LSTM(nnx.Module):
    def __init__(self, width: int, drop: float, rngs: nnx.Rngs) -> None:
        draw = lambda: LECUN_NORMAL(rngs.params(), (width, 4 * width), jnp.float32)  # noqa: E731
        self.inputs, self.recurrent = nnx.Param(draw()), nnx.Param(draw())
        forget = (jnp.arange(4) == 1).astype(jnp.float32)
        self.bias = nnx.Param(jnp.repeat(forget, width))
        self.drop = drop

    def __call__(self, x: Any, ctx: Context) -> Any:
        recurrent = self.recurrent[...]
        before = jnp.moveaxis(x @ self.inputs[...] + self.bias[...], 1, 0)  # [length, b, 4 width]

        def step(carry: Any, fed: Any) -> tuple[Any, Any]:
            h, c = carry
            i, f, g, o = jnp.split(fed + h @ recurrent, 4, axis=-1)
            c = nnx.sigmoid(f) * c + nnx.sigmoid(i) * jnp.tanh(g)
            h = nnx.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[0], x.shape[-1]), before.dtype)
        _, hidden = lax.scan(step, (start, start), before)
        return dropout(jnp.moveaxis(hidden, 0, 1), self.drop, ctx)


class _Head(nnx.Module):
    def __init__(self, width: int, vocabulary: int, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(width, vocabulary, kernel_init=LECUN_NORMAL, rngs=rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        return self.linear(x)


def lstm(
    inputs: tuple[int, ...], outputs: int, width: int = 128, layers: int = 1, drop: float = 0.0
) -> Model:
    """Next-token logits f[b, length, outputs] of tokens i32[b, length]: embedding, LSTMs, head.

    In each layer, from h = c = 0 on:

        i, f, g, o = x W + h R + bias (four vectors)
        c = sigmoid(f) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)

    The bias starts at 0, that of the forget gate f at 1. Every example starts anew.

    Args:
      inputs: (length,) of one example (given by the task), tokens from 0 to outputs - 1.
      outputs: size of the vocabulary (given by the task).
      width: of the embedding and of every layer.
      layers: number of LSTM layers, one upon the other.
      drop: share of numbers dropped in training after the embedding and after each layer, never
        between steps of time (Zaremba, Sutskever and Vinyals, 2014).

    Raises:
      ValueError: inputs that are no tokens in a row; width or layers below 1; drop outside [0, 1).

    Reference: Hochreiter and Schmidhuber, "Long short-term memory", 1997; the forget gate: Gers,
    Schmidhuber and Cummins, "Learning to forget", 2000; its bias of 1: Jozefowicz, Zaremba and
    Sutskever, "An empirical exploration of recurrent network architectures", 2015.

    Differences from the paper: a forget gate, no peepholes; gradients flow through all of an
    example's steps.
    """
    if len(inputs) != 1:
        raise ValueError(f"lstm wants tokens [length], not inputs of {inputs}")
    if width < 1 or layers < 1:
        raise ValueError(f"lstm: width and layers are at least 1, not {width} and {layers}")
    if not 0 <= drop < 1:
        raise ValueError(f"lstm: drop is in [0, 1), not {drop}")
    return chain_model(
        embed=lambda rngs: _Embed(outputs, width, drop, rngs),
        block=lambda rngs: _LSTM(width, drop, rngs),
        num_blocks=layers,
        head=lambda rngs: _Head(width, outputs, rngs),
    )
