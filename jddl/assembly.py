"""Five independent parts -> one training step.

The layout, the forward and backward pass, the exchange, the update and the outer method are
chosen separately; this file joins them to a `Strategy` that every runtime runs. Scaling happens
here and only here: a worker hands the aggregator (gradient of the loss sum) n / W, W the global
weight, so the aggregator's mean is the gradient of the global mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from jddl.collectives import _api
from jddl.mesh import Mesh, Own, layout_of
from jddl.records import Aggregator, Context, Model, Strategy, Sums, Task


class TrainState(NamedTuple):
    """The whole state of a run: parameters, running statistics, optimiser and aggregator."""

    params: Any
    stats: Any
    opt: Any


def forward(model: Model, params: Any, stats: Any, inputs: Any, ctx: Context) -> tuple[Any, Any]:
    """(outputs, new stats) of the whole model on one worker's inputs."""
    x, stats, _ = model.embed(params["shared"], stats, inputs, ctx.within("embed"))
    for index, block in enumerate(params["blocks"]):
        x, stats, _ = model.block(block, stats, x, ctx.within(f"block {index}"))
    x, stats, _ = model.head(params["shared"], stats, x, ctx.within("head"))
    return x, stats


def sums(task: Task, model: Model, params: Any, stats: Any, batch: Any, ctx: Context) -> Sums:
    """{'loss': (sum, weight), ...the task's metrics}: what evaluation adds up."""
    outputs, _ = forward(model, params, stats, batch["inputs"], ctx)
    return {"loss": task.loss(outputs, batch, ctx), **task.metrics(outputs, batch, ctx)}


def data_parallel(
    task: Task,
    model: Model,
    mesh: Mesh,
    aggregator: Aggregator,
    optimizer: optax.GradientTransformation,
    all_reduce: str = "native",
    accumulate: int = 1,
) -> Strategy:
    """Synchronous data parallelism: the batch is split over 'data', the state is replicated.

    Args:
      mesh: must be {'data': n}.
      aggregator, optimizer: chained, so an aggregator may hold state of its own.
      all_reduce: carries the global weight where the task's weight differs between workers.
      accumulate: micro-batches a worker adds up before the exchange; its rows must divide.
    """
    if tuple(mesh) != ("data",):
        raise ValueError(f"no layout uses the mesh axes {', '.join(mesh)}; there is: data")
    chain = optax.chain(aggregator, optimizer)

    def init(params: Any, stats: Any) -> TrainState:
        return TrainState(params, stats, chain.init(params))

    def layout(state: TrainState) -> Any:
        return TrainState(P(), Own(("data",)), layout_of(state.opt, ("data",)))

    def step(state: TrainState, batch: Any, key: Any) -> tuple[TrainState, Sums]:
        examples = _places(batch)
        constant: list[float | None] = []  # the weight, where the task gave a plain number

        def gradient_sum(stats: Any, rows: Any, places: Any) -> tuple[Any, Any]:
            ctx = Context(key=key, train=True, examples=places, data="data")

            def loss_sum(params: Any) -> tuple[Any, Any]:
                outputs, after = forward(model, params, stats, rows["inputs"], ctx)
                total, weight = task.loss(outputs, rows, ctx)
                constant.append(weight if isinstance(weight, (int, float)) else None)
                return total, (after, {"loss": (total, weight), **task.metrics(outputs, rows, ctx)})

            gradients, (after, local) = jax.grad(loss_sum, has_aux=True)(state.params)
            return (gradients, jax.tree.map(jnp.asarray, local)), after

        (gradients, local), stats = _added_up(
            gradient_sum, state.stats, (batch, examples), accumulate
        )
        chex.assert_trees_all_equal_shapes_and_dtypes(gradients, state.params)
        known = None if constant[-1] is None else constant[-1] * accumulate
        factor = _n_over_global_weight(known, local["loss"][1], all_reduce)
        gradients = jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)
        updates, opt = chain.update(gradients, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        local = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), local)
        return TrainState(params, stats, opt), local

    return Strategy(
        axes=("data",),
        init=init,
        layout=layout,
        batch=P("data"),
        step=step,
        params_of=lambda state: (state.params, jax.tree.map(lambda s: s[0], state.stats)),
    )


def _added_up(f: Any, stats: Any, rows: Any, parts: int) -> tuple[Any, Any]:
    """f(stats, rows, places) -> (sums, stats) over `parts` micro-batches: all sums, last stats."""
    if parts == 1:
        return f(stats, *rows)  # type: ignore[no-any-return]
    cut = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), rows)

    def add(carry: Any, micro: Any) -> tuple[Any, None]:
        total, stats = carry
        sums, stats = f(stats, *micro)
        return (jax.tree.map(jnp.add, total, sums), stats), None

    shapes = jax.eval_shape(f, stats, *jax.tree.map(lambda x: x[0], cut))[0]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return lax.scan(add, (zeros, stats), cut)[0]


def _places(batch: Any) -> Any:
    """i32[b]: where this worker's rows stand in the global batch."""
    size = len(jax.tree.leaves(batch)[0])
    return lax.axis_index("data") * size + jnp.arange(size, dtype=jnp.int32)


def _n_over_global_weight(constant: float | None, weight: Any, all_reduce: str) -> Any:
    """n / W. A plain number is the same on each worker: nothing travels for it."""
    if constant is not None:
        return jnp.asarray(1.0 / constant)
    n = lax.axis_size("data")
    total = _api.all_reduce(jnp.asarray(weight), "data", all_reduce)
    return n / jnp.maximum(total, 1e-30)
