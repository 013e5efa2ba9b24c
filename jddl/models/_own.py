"""Models from outside: a Flax NNX module, or functions on a pytree of parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from jddl.models._nnx import Build, chain_model
from jddl.records import Context, Model, Tree


class _Inputs(nnx.Module):
    def __call__(self, x: Any, ctx: Context) -> Any:
        return x


class _Whole(nnx.Module):
    def __init__(self, build: Build, rngs: nnx.Rngs) -> None:
        self.inner = build(rngs)

    def __call__(self, x: Any, ctx: Context) -> Any:
        call: Any = self.inner
        return call(x, ctx=ctx) if _takes_context(type(call)) else call(x)


def from_nnx(build: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """A Model of any Flax NNX module, called with the inputs of one worker's rows.

    The module is one piece (no blocks), so `remat` has nothing to repeat. It runs on each worker
    by itself; all parameters are trained. A `__call__` with a parameter `ctx` gets the
    `records.Context` too (`ctx.train`, `ctx.key`).

    Args:
      build: makes the module from an `nnx.Rngs`; the class itself, where it takes nothing else.

    Raises:
      ValueError: the module keeps more than parameters: running statistics would differ between
        the workers, and random streams would be the same on all of them.

    Example:
      >>> from flax import nnx
      >>> model = from_nnx(lambda rngs: nnx.Linear(4, 2, rngs=rngs))
    """
    module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    rest = nnx.state(module, nnx.Not(nnx.Param))
    kinds = sorted({type(leaf).__name__ for _, leaf in nnx.to_flat_state(rest)})
    if kinds:
        raise ValueError(
            f"from_nnx takes a module that keeps nnx.Param alone, not {', '.join(kinds)}: write it "
            "as a file of the models shelf, with the context's axis and key"
        )
    nothing = lambda rngs: _Inputs()  # noqa: E731
    return chain_model(nothing, nothing, 0, lambda rngs: _Whole(build, rngs))


def from_functions(init: Callable[[Any], Tree], apply: Callable[..., Any]) -> Model:
    """A Model of two functions: `init(key) -> parameters` and `apply(parameters, inputs)`.

    The parameters are any pytree of arrays; the outputs belong to one worker's rows. An `apply`
    with a parameter `ctx` gets the `records.Context` too. One piece, without blocks.

    Args:
      init: makes the parameters from a random key, the same on all workers.
      apply: the forward pass.

    Example:
      >>> import jax.numpy as jnp
      >>> model = from_functions(lambda key: jnp.zeros((4, 2)), lambda w, x: x @ w)
    """
    with_context = "ctx" in inspect.signature(apply).parameters

    def first(key: Any) -> tuple[Any, Any]:
        return {"shared": jax.tree.map(jnp.asarray, init(key)), "blocks": ()}, {}

    def dims(params: Any) -> Any:
        return jax.tree.map(lambda _: P(), params)

    def same(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, dict[str, Any]]:
        return x, stats, {}

    def head(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, dict[str, Any]]:
        return (apply(params, x, ctx=ctx) if with_context else apply(params, x)), stats, {}

    return Model(first, dims, same, same, head)


def _takes_context(kind: Any) -> bool:
    return "ctx" in inspect.signature(kind.__call__).parameters
