"""Flax NNX modules as pure functions on plain dicts of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec as P

from jddl.records import Context, Model
from jddl.trees import fold_name

Build = Callable[[nnx.Rngs], nnx.Module]


def chain_model(
    embed: Build, block: Build, num_blocks: int, head: Build, tied: tuple[str, ...] = ()
) -> Model:
    """A Model whose parts are NNX modules called with (array, context); blocks have one structure.

    A part returns an array, or (array, aux) with aux {name: (sum, weight)} (`records.Model`).
    tied: names of parameters of the head that are the embedding's of the same name.

    params = {'shared': {'embed', 'head'}, 'blocks': (one tree a block)}. Each part is initialised
    from its own key, folded from the model's key and the part's name, so initial parameters do not
    depend on how the model is cut. Parts are built under `jax.eval_shape`, which needs no device.
    What parts keep in `nnx.BatchStat` are the running statistics, a tree of the same form; {} where
    there are none.
    """
    builds = {"embed": embed, "block": block, "head": head}
    templates = {
        name: nnx.split(
            nnx.eval_shape(lambda build=build: build(nnx.Rngs(0))), nnx.Param, nnx.BatchStat
        )
        for name, build in builds.items()
    }

    def init(key: Any) -> tuple[Any, Any]:
        def make(name: str, label: str) -> tuple[Any, Any]:
            module = builds[name](nnx.Rngs(fold_name(key, label)))
            return tuple(  # type: ignore[return-value]
                nnx.to_pure_dict(nnx.state(module, kind)) for kind in (nnx.Param, nnx.BatchStat)
            )

        ends = {"embed": make("embed", "embed"), "head": make("head", "head")}
        for name in tied:
            del ends["head"][0][name]
        blocks = [make("block", f"block{i}") for i in range(num_blocks)]
        params, stats = (
            {"shared": {k: v[i] for k, v in ends.items()}, "blocks": tuple(b[i] for b in blocks)}
            for i in (0, 1)
        )
        return params, stats if jax.tree.leaves(stats) else {}

    def call(name: str) -> Callable[..., Any]:
        graph, *abstract = templates[name]

        def apply(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, dict[str, Any]]:
            held = (params, stats)
            if name != "block":
                own = params[name]
                if name == "head" and tied:
                    own = own | {t: params["embed"][t] for t in tied}
                held = (own, stats[name] if stats else {})
            module = nnx.merge(graph, *map(_filled, abstract, held))
            out = module(x, ctx)  # type: ignore[operator]
            x, aux = out if isinstance(out, tuple) else (out, {})
            if not stats:
                return x, stats, aux
            after = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))
            return x, after if name == "block" else {**stats, name: after}, aux

        return apply

    def dims(params: Any) -> Any:
        return jax.tree.map(lambda _: P(), params)

    return Model(init, dims, call("embed"), call("block"), call("head"))


def _filled(template: Any, values: Any) -> Any:
    state = jax.tree.map(lambda leaf: leaf, template)  # a copy: the template stays abstract
    nnx.replace_by_pure_dict(state, values)
    return state
