"""A layer of experts: tokens choose, within each example, up to a capacity."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from jddl.models._presets import Shape
from jddl.models._workers import over_workers
from jddl.records import Context, Sums


class Routes(NamedTuple):
    """gates, kept: f[b, s, top], bool[b, s, top]; experts, places: i32[b, s, top].

    Token s of example b sends its j-th choice to place `places` of `experts`, unless not `kept`,
    and adds the expert's output times the gate.
    """

    gates: Any
    experts: Any
    places: Any
    kept: Any


def choose(probabilities: Any, top: int, capacity: int) -> Routes:
    """The `top` most probable experts of each token, first come first served within an example.

    All first choices are placed before any second choice. Gates: the probability itself for
    top=1 (Switch), probabilities that add up to 1 over the choices elsewhere (GShard, Mixtral).

    Args:
      probabilities: f[b, s, experts].
      top: choices a token.
      capacity: places an expert has in each example.
    """
    gates, experts = lax.top_k(probabilities, top)
    if top > 1:
        gates = gates / jnp.sum(gates, -1, keepdims=True)
    b, s, number = probabilities.shape
    in_order = jnp.swapaxes(experts, 1, 2).reshape(b, top * s)  # every token's first choice first
    chosen = jax.nn.one_hot(in_order, number, dtype=jnp.int32)
    earlier = jnp.cumsum(chosen, 1) - chosen
    places = jnp.sum(earlier * chosen, -1).reshape(b, top, s).swapaxes(1, 2)
    return Routes(gates, experts, places, places < capacity)


def balance(probabilities: Any, first: Any, ctx: Context) -> Any:
    """E sum_e f_e p_e over all tokens of all workers; 1 where all experts are used alike.

    f_e: share of tokens whose first choice is e (no gradient); p_e: mean probability of e.

    Args:
      probabilities: f[b, s, E].
      first: i32[b, s].

    Reference: Fedus et al., "Switch transformers", 2022, equations 4 to 6, where the batch is one
    worker's.
    """
    number = probabilities.shape[-1]
    weights = jnp.ones(len(first)) if ctx.weights is None else ctx.weights
    weights = weights.astype(probabilities.dtype)[:, None, None]
    used = lax.stop_gradient(jax.nn.one_hot(first, number, dtype=probabilities.dtype))
    parts = [jnp.sum(weights * x, (0, 1)) for x in (used, probabilities)]
    parts.append(jnp.sum(weights)[None] * first.shape[1])
    total = over_workers(jnp.concatenate(parts), ctx)
    count = jnp.maximum(lax.stop_gradient(total[-1]), 1)
    f, p = lax.stop_gradient(total[:number]) / count, total[number:-1] / count
    return number * jnp.sum(f * p)


class Experts(nnx.Module):
    """Feed-forward experts with a linear router; the router computes in float32 at least."""

    def __init__(
        self, shape: Shape, capacity_factor: float, penalty: float, rngs: nnx.Rngs
    ) -> None:
        normal = nnx.initializers.normal(0.02, jnp.float32)
        last = nnx.initializers.normal(0.02 / math.sqrt(2 * max(shape.layers, 1)), jnp.float32)
        e, d, h = shape.experts, shape.width, shape.hidden
        self.router = nnx.Linear(d, e, use_bias=False, kernel_init=normal, rngs=rngs)
        self.up = nnx.Param(normal(rngs.params(), (e, d, h)))
        self.gate = nnx.data(
            nnx.Param(normal(rngs.params(), (e, d, h))) if shape.activation == "swiglu" else None
        )
        self.down = nnx.Param(last(rngs.params(), (e, h, d)))
        self.shape, self.capacity_factor, self.penalty = shape, capacity_factor, penalty

    def __call__(self, x: Any, ctx: Context) -> tuple[Any, Sums]:
        """x[b, s, width] -> (the same shape, aux)."""
        number, top, length = self.shape.experts, self.shape.top, x.shape[1]
        exact = jnp.promote_types(x.dtype, jnp.float32)
        router = self.router.kernel[...].astype(exact)
        probabilities = jax.nn.softmax(x.astype(exact) @ router)
        capacity = length  # an expert gets at most one choice of each token
        if self.capacity_factor:
            capacity = min(length, math.ceil(self.capacity_factor * top * length / number))
        routes = choose(probabilities, top, capacity)
        kept = routes.kept.astype(x.dtype)[..., None, None]
        slots = (  # [b, s, top, experts, capacity]
            jax.nn.one_hot(routes.experts, number, dtype=x.dtype)[..., None]
            * jax.nn.one_hot(routes.places, capacity, dtype=x.dtype)[..., None, :]
            * kept
        )
        gates = routes.gates.astype(x.dtype)[..., None, None]
        rows = jnp.einsum("bsec,bsd->ebcd", jnp.sum(slots, 2), x)
        out = jnp.einsum("bsec,ebcd->bsd", jnp.sum(gates * slots, 2), self._each(rows))
        return out, self._aux(probabilities, routes, ctx)

    def _each(self, rows: Any) -> Any:
        """rows[experts, b, capacity, width] through each expert's own layers."""
        up = jnp.einsum("ebcd,edh->ebch", rows, self.up[...].astype(rows.dtype))
        if self.gate is None:
            up = jax.nn.gelu(up)
        else:
            gate = jnp.einsum("ebcd,edh->ebch", rows, self.gate[...].astype(rows.dtype))
            up = jax.nn.silu(gate) * up
        return jnp.einsum("ebch,ehd->ebcd", up, self.down[...].astype(rows.dtype))

    def _aux(self, probabilities: Any, routes: Routes, ctx: Context) -> Sums:
        b, s, top = routes.kept.shape
        weights = jnp.ones(b) if ctx.weights is None else ctx.weights
        weights = weights.astype(probabilities.dtype)
        dropped = jnp.sum(weights[:, None, None] * (1 - routes.kept.astype(probabilities.dtype)))
        aux: dict[str, tuple[Any, Any]] = {"dropped": (dropped, jnp.sum(weights) * s * top)}
        if ctx.train and self.penalty:
            even = balance(probabilities, routes.experts[..., 0], ctx)
            aux["penalty"] = (self.penalty * even, 1.0)
        return aux
