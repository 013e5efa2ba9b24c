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
from jddl.mesh import Mesh, layout_of
from jddl.precision import LossScaling, first_scale, next_scale, not_finite
from jddl.records import Aggregator, Context, Model, Strategy, Sums, Task


class TrainState(NamedTuple):
    """The whole state of a run: parameters, running statistics, optimiser and aggregator.

    scale: the loss scale of float16 (`precision.LossScale`), () elsewhere.
    """

    params: Any
    stats: Any
    opt: Any
    scale: Any


def forward(
    model: Model, params: Any, stats: Any, inputs: Any, ctx: Context
) -> tuple[Any, Any, Sums]:
    """(outputs, new stats, aux of all parts) of the whole model on one worker's inputs."""
    shared, blocks = stats.get("shared", {}), []
    aux: dict[str, tuple[Any, Any]] = {}

    def add(more: Sums) -> None:
        for name, (total, weight) in more.items():
            before = aux.get(name, (0.0, 0.0))
            aux[name] = (before[0] + total, before[1] + weight)

    x, shared, more = model.embed(params["shared"], shared, inputs, ctx.within("embed"))
    add(more)
    for index, block in enumerate(params["blocks"]):
        own = stats["blocks"][index] if stats else {}
        x, own, more = model.block(block, own, x, ctx.within(f"block {index}"))
        blocks.append(own)
        add(more)
    x, shared, more = model.head(params["shared"], shared, x, ctx.within("head"))
    add(more)
    return x, {"shared": shared, "blocks": tuple(blocks)} if stats else {}, aux


def sums(
    task: Task, model: Model, params: Any, stats: Any, batch: Any, ctx: Context
) -> tuple[Sums, Any]:
    """({'loss': (sum, weight), ...the task's metrics, ...the model's aux}, new stats) of some rows.

    Raises:
      ValueError: the batch has weights, but a sum's weight is a plain number: padding would count;
        the model's aux has a name of the task's.
    """
    ctx = ctx._replace(weights=batch.get("weight"))
    outputs, stats, aux = forward(model, params, stats, batch["inputs"], ctx)
    found = {"loss": task.loss(outputs, batch, ctx), **task.metrics(outputs, batch, ctx)}
    for name, (_, weight) in found.items():
        if "weight" in batch and isinstance(weight, (int, float)):
            raise ValueError(
                f"the task's {name} has the plain weight {weight}, but the batch holds 'weight' "
                "(padding weighs 0): return weighted sums and the sum of the weights"
            )
    if both := found.keys() & aux.keys():
        raise ValueError(f"model and task both report {', '.join(sorted(both))}: rename one")
    return {**found, **aux}, stats


def objective(found: Sums) -> tuple[Any, Any]:
    """(sum, weight) that training differentiates: the loss, each example penalised alike."""
    total, weight = found["loss"]
    return total + found["penalty"][0] * weight if "penalty" in found else total, weight


def own_objective(task: Task, model: Model, params: Any, stats: Any, batch: Any, key: Any) -> Any:
    """The sum that a worker differentiates, of its own rows; under the axis 'data'."""
    ctx = Context(key, True, places(batch), data="data")
    return objective(sums(task, model, params, stats, batch, ctx)[0])[0]


def data_parallel(
    task: Task,
    model: Model,
    mesh: Mesh,
    aggregator: Aggregator,
    optimizer: optax.GradientTransformation,
    all_reduce: str = "native",
    accumulate: int = 1,
    scaling: LossScaling | None = None,
) -> Strategy:
    """Synchronous data parallelism: the batch is split over 'data', the state is replicated.

    Args:
      mesh: must be {'data': n}.
      aggregator, optimizer: chained, so an aggregator may hold state of its own.
      all_reduce: carries what the step itself sums: the global weight where the task's weight
        differs between workers, statistics of batch normalisation, the flag of an overflow.
      accumulate: micro-batches a worker adds up before the exchange; its rows must divide. All
        but batch normalisation, which sees one micro-batch of all workers, equals the large batch.
      scaling: of the loss, for float16. A step in which any worker's gradient overflows changes
        nothing but the scale, on any worker.
    """
    if tuple(mesh) != ("data",):
        raise ValueError(f"no layout uses the mesh axes {', '.join(mesh)}; there is: data")
    chain = optax.chain(aggregator, optimizer)

    def init(params: Any, stats: Any) -> TrainState:
        return TrainState(params, stats, chain.init(params), first_scale(scaling))

    def layout(state: TrainState) -> Any:
        return TrainState(P(), P(), layout_of(state.opt, ("data",)), P())

    def local_gradients(state: TrainState, batch: Any, key: Any) -> tuple[Any, Any, Any]:
        constant: list[float | None] = []  # the weight, where the task gave a plain number

        def gradient_sum(stats: Any, rows: Any, places: Any) -> tuple[Any, Any]:
            ctx = Context(key, True, places, all_reduce=all_reduce, data="data")

            def loss_sum(params: Any) -> tuple[Any, Any]:
                found, after = sums(task, model, params, stats, rows, ctx)
                total, weight = objective(found)
                constant.append(weight if isinstance(weight, (int, float)) else None)
                return total, (jax.tree.map(lambda x: jnp.asarray(x, total.dtype), found), after)

            total, pull_back, (local, after) = jax.vjp(loss_sum, state.params, has_aux=True)
            if scaling is None:
                (gradients,) = pull_back(jnp.ones_like(total))
                return (gradients, local), after
            # Half precision adds up a gradient of the scaled mean, not of the sum, which overflows
            # where the mean does not; the master copies' precision then holds the sum.
            # One seed for all workers, since sums within the model mix their cotangents.
            weight = local["loss"][1]
            if constant[-1] is None:
                mean = _api.all_reduce(weight, "data", all_reduce) / lax.axis_size("data")
                weight = jnp.where(mean > 0, mean, 1)
            seed = state.scale.scale.astype(total.dtype) / weight
            (gradients,) = pull_back(seed)
            return (jax.tree.map(lambda g: g / seed.astype(g.dtype), gradients), local), after

        rows = (batch, places(batch))
        (gradients, local), stats = _added_up(gradient_sum, state.stats, rows, accumulate)
        chex.assert_trees_all_equal_shapes_and_dtypes(gradients, state.params)
        known = None if constant[-1] is None else constant[-1] * accumulate
        factor = _n_over_global_weight(known, local["loss"][1], all_reduce)
        gradients = jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)
        return gradients, local, stats

    def step(state: TrainState, batch: Any, key: Any) -> tuple[TrainState, Sums]:
        gradients, local, stats = local_gradients(state, batch, key)
        updates, opt = chain.update(gradients, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        after = TrainState(params, stats, opt, state.scale)
        if scaling is not None:
            finite = _api.all_reduce(not_finite(gradients), "data", all_reduce) == 0
            after = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)
            after = after._replace(scale=next_scale(scaling, state.scale, finite))
            local["loss_scale"] = (state.scale.scale, jnp.ones((), jnp.float32))
        return after, local

    return Strategy(
        axes=("data",),
        init=init,
        layout=layout,
        batch=P("data"),
        step=step,
        params_of=lambda state: (state.params, state.stats),
        gradients=lambda state, batch, key: local_gradients(state, batch, key)[0],
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


def places(batch: Any) -> Any:
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
