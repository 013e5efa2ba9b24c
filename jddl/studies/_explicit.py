"""Training on one device with an explicit Python list of workers: what `verify` compares with.

Nothing of assembly, runtimes, collectives or the exchange is used here: only the task, the model,
the optimiser and, for lossy methods, the aggregator's form on lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jddl.experiment import Experiment
from jddl.records import Context, OnLists

# (gradients of the loss sum, weights, step; one entry a worker) -> the gradient for the optimiser
Agree = Callable[[list[Any], list[Any], int], Any]


def train(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    workers: int,
    steps: int,
    dtype: Any,
    agree: Agree,
    lag: int = 0,
) -> list[Any]:
    """Parameters (host) before the first and after each step.

    Args:
      experiment: its task, model and seed are used.
      optimizer: on the agreed gradient.
      workers: how many equal pieces the global batch is cut into (the last ones may be shorter).
      dtype: of parameters and data.
      agree: makes one gradient of the workers'.
      lag: how many steps old the parameters are that gradients are taken at (0 is right).
    """
    task, model, seed = experiment.task, experiment.model, experiment.config.seed
    params, stats = cast(model.init(jax.random.key(seed)), dtype)
    opt, key = optimizer.init(params), jax.random.key(seed + 1)

    @jax.jit
    def local(params: Any, stats: Any, rows: Any, key: Any, examples: Any) -> Any:
        ctx = Context(key=key, train=True, examples=examples)

        def loss_sum(params: Any) -> Any:
            x, after, aux = forward(model, params, stats, rows["inputs"], ctx)
            total, weight = task.loss(x, rows, ctx)
            return total, (jnp.asarray(weight), after)

        return jax.grad(loss_sum, has_aux=True)(params)

    seen = [params]
    for step in range(steps):
        batch = cast(task.batch(step, "train", seed), dtype)
        gradients, weights = [], []
        for rows, examples in pieces(batch, workers):
            at = seen[max(0, len(seen) - 1 - lag)]
            gradient, (weight, after) = local(
                at, stats, rows, jax.random.fold_in(key, step), examples
            )
            gradients.append(gradient)
            weights.append(weight)
        stats = after
        updates, opt = optimizer.update(agree(gradients, weights, step), opt, params)
        params = optax.apply_updates(params, updates)
        seen.append(params)
    return [jax.device_get(p) for p in seen]


def whole(gradients: list[Any], weights: list[Any], step: int) -> Any:
    """The right answer: the sum of all gradients over the sum of all weights."""
    total = sum(weights)
    return jax.tree.map(lambda *gs: sum(gs) / total, *gradients)


def by_lists(rule: OnLists, params: Any, workers: int) -> Agree:
    """The aggregator's own rule on lists, fed with gradient * n / W of each worker."""
    memory = [rule.init(params, workers)]

    def agree(gradients: list[Any], weights: list[Any], step: int) -> Any:
        factor = workers / sum(weights)
        scaled = [jax.tree.map(lambda g: g * factor, gradient) for gradient in gradients]
        agreed, memory[0] = rule.update(scaled, memory[0], step)
        return agreed[0]

    return agree


def forward(model: Any, params: Any, stats: Any, x: Any, ctx: Context) -> Any:
    """The model's parts one after the other."""
    x, stats, aux = model.embed(params["shared"], stats, x, ctx)
    for block in params["blocks"]:
        x, stats, _ = model.block(block, stats, x, ctx)
    x, stats, _ = model.head(params["shared"], stats, x, ctx)
    return x, stats, aux


def pieces(batch: Any, workers: int) -> list[tuple[Any, Any]]:
    """(rows, their places in the global batch) of each worker; a worker may have none left."""
    size = len(jax.tree.leaves(batch)[0])
    share = -(-size // workers)
    cuts = [(i * share, min(size, (i + 1) * share)) for i in range(workers)]
    return [
        (jax.tree.map(lambda x: x[a:b], batch), np.arange(a, b, dtype=np.int32))  # noqa: B023
        for a, b in cuts
        if b > a
    ]


def cast(tree: Any, dtype: Any) -> Any:
    """Floating leaves to dtype."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )
