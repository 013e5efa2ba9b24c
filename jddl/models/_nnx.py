"""Flax NNX modules as pure functions on plain dicts of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec as P

from jddl.records import Context, Model, Sums
from jddl.trees import fold_name

Build = Callable[[nnx.Rngs], nnx.Module]
KINDS = (nnx.Param, nnx.BatchStat)


class _Part:
    """One module as a template without arrays: makes its (params, stats), runs with given ones."""

    def __init__(self, build: Build) -> None:
        self.build = build
        abstract = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
        self.graph, *self.abstract = nnx.split(abstract, *KINDS)
        self.shapes = _shapes(nnx.to_pure_dict(self.abstract[0]))
        self._traced = jax.jit(self._made)

    def make(self, key: Any) -> tuple[Any, Any]:
        """(params, stats). Under a trace the part is traced once, however many blocks are made."""
        return (self._traced if isinstance(key, jax.core.Tracer) else self._made)(key)

    def _made(self, key: Any) -> tuple[Any, Any]:
        module = self.build(nnx.Rngs(key))
        params, stats = (nnx.to_pure_dict(nnx.state(module, kind)) for kind in KINDS)
        return params, stats

    def run(self, params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, Sums]:
        module = nnx.merge(self.graph, *map(_filled, self.abstract, (params, stats)))
        out = module(x, ctx)  # type: ignore[operator]
        x, aux = out if isinstance(out, tuple) else (out, {})
        return x, nnx.to_pure_dict(nnx.state(module, nnx.BatchStat)) if stats else stats, aux


def chain_model(
    embed: Build,
    block: Build | Sequence[Build],
    num_blocks: int,
    head: Build,
    tied: tuple[str, ...] = (),
) -> Model:
    """A Model whose parts are NNX modules called with (array, context).

    A part returns an array, or (array, aux) with aux {name: (sum, weight)} (`records.Model`).

    params = {'shared': {'embed', 'head'}, 'blocks': (one tree a block)}. Each part is initialised
    from its own key, folded from the model's key and the part's name, so initial parameters do not
    depend on how the model is cut. Parts are built under `jax.eval_shape`, which needs no device.
    What parts keep in `nnx.BatchStat` are the running statistics, a tree of the same form; {} where
    there are none.

    Args:
      block: one builder for all blocks, or `num_blocks` of them. A block's parameters tell by their
        names and shapes which of the builders made them, so builders that agree in these must
        build the same module.
      tied: names of parameters of the head that are the embedding's of the same name.
    """
    builds = [block] * num_blocks if callable(block) else list(block)
    assert len(builds) == num_blocks, f"{len(builds)} builders of {num_blocks} blocks"
    ends = {"embed": _Part(embed), "head": _Part(head)}
    parts = {build: _Part(build) for build in dict.fromkeys(builds)}
    by_shapes: dict[Any, _Part] = {}
    for part in parts.values():
        first = by_shapes.setdefault(part.shapes, part)
        assert part.graph == first.graph, "two kinds of block have the same parameters"

    def init(key: Any) -> tuple[Any, Any]:
        made = {name: part.make(fold_name(key, name)) for name, part in ends.items()}
        for name in tied:
            del made["head"][0][name]
        blocks = [parts[b].make(fold_name(key, f"block{i}")) for i, b in enumerate(builds)]
        params, stats = (
            {"shared": {k: v[i] for k, v in made.items()}, "blocks": tuple(b[i] for b in blocks)}
            for i in (0, 1)
        )
        return params, stats if jax.tree.leaves(stats) else {}

    def end(name: str) -> Callable[..., Any]:
        def apply(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, Sums]:
            own = params[name]
            if name == "head":
                own = own | {t: params["embed"][t] for t in tied}
            x, after, aux = ends[name].run(own, stats[name] if stats else {}, x, ctx)
            return x, {**stats, name: after} if stats else stats, aux

        return apply

    def run_block(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, Sums]:
        known = list(by_shapes.values())
        part = known[0] if len(known) == 1 else by_shapes[_shapes(params)]
        return part.run(params, stats, x, ctx)

    def dims(params: Any) -> Any:
        return jax.tree.map(lambda _: P(), params)

    return Model(init, dims, end("embed"), run_block, end("head"))


def _shapes(params: Any) -> Any:
    """What tells one kind of block from another: the names and shapes of its parameters."""
    return tuple((jax.tree_util.keystr(p), x.shape) for p, x in jax.tree.leaves_with_path(params))


def _filled(template: Any, values: Any) -> Any:
    state = jax.tree.map(lambda leaf: leaf, template)  # a copy: the template stays abstract
    nnx.replace_by_pure_dict(state, values)
    return state
