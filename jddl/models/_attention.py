"""Attention with grouped queries, and rotary positions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """softmax(q k / sqrt(d)) v for each head; f[b, s, heads, d].

    q[b, s, heads, d], k and v [b, s, kv_heads, d]: query head h reads key and value head
    h // (heads / kv_heads). causal: position i sees positions 0 to i. The softmax is taken in
    float32 at least. (`jax.nn.dot_product_attention` takes it in float32 for float64 too, which
    `verify` would report.)
    """
    b, s, _, d = q.shape
    grouped = q.reshape(b, s, k.shape[2], -1, d)
    scores = jnp.einsum("bikgd,bjkd->bkgij", grouped * d**-0.5, k)
    scores = scores.astype(jnp.promote_types(q.dtype, jnp.float32))
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores).astype(v.dtype)
    return jnp.einsum("bkgij,bjkd->bikgd", weights, v).reshape(q.shape)


def rotate(x: Any, theta: float) -> Any:
    """Rotary positions: the pair (x_i, x_{i + d/2}) at position p is turned by p theta^(-2i/d).

    x[b, s, heads, d], d even. Reference: Su et al., "RoFormer", 2021; there neighbours are the
    pairs, here the two halves, which permutes the dimensions of queries and keys alike.
    """
    length, half = x.shape[1], x.shape[-1] // 2
    exact = jnp.promote_types(x.dtype, jnp.float32)
    rates = theta ** (-jnp.arange(half, dtype=exact) / half)
    angles = jnp.arange(length, dtype=exact)[:, None, None] * rates  # [s, 1, d/2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = jnp.split(x.astype(exact), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)
