"""Training on one device with an explicit Python list of workers: what `verify` compares with.

No step, runtime, collective or exchange of jddl is used here: only the task, the model and its
forward pass, the optimiser and, for lossy methods, the aggregator's form on lists. A model that
communicates by itself (batch normalisation, balanced experts) has its workers on a vmapped axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jddl import assembly
from jddl.experiment import Experiment
from jddl.records import Context, OnLists
from jddl.trees import as_key, step_key

# (gradients of the loss sum, weights, step; one entry a worker) -> the gradient for the optimiser
Agree = Callable[[list[Any], list[Any], int], Any]


class Wrong(NamedTuple):
    """Mistakes that `train` makes on purpose; all off is right.

    lag: how many steps old the parameters are that gradients are taken at; drop, trim: how many
    last examples of a batch, or of each worker, are left out; same_places: each worker counts its
    examples from 0; rank_key: each worker folds its rank into the key; gathered: each worker
    computes on the whole batch.
    """

    lag: int = 0
    drop: int = 0
    trim: int = 0
    same_places: bool = False
    rank_key: bool = False
    gathered: bool = False


def train(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    workers: int,
    steps: int,
    dtype: Any,
    agree: Agree,
    local: Any = None,
    wrong: Wrong = Wrong(),  # noqa: B008 - immutable
    together: bool = False,
) -> list[Any]:
    """Parameters (host) before the first and after each step.

    Args:
      experiment: its task, model and seed are used.
      optimizer: on the agreed gradient.
      workers: how many equal pieces the global batch is cut into (the last ones may be shorter).
      dtype: of parameters and data.
      agree: makes one gradient of the workers'.
      local: `local_gradient(experiment, together)`, to compile it once for many trainings.
      wrong: mistakes.
      together: whether the model's own sums span the workers, which then have as many rows each.
    """
    task, seed = experiment.task, experiment.config.seed
    local = local or local_gradient(experiment, together)
    params, stats = cast(experiment.model.init(jax.random.key(seed)), dtype)
    opt, seen = optimizer.init(params), [params]
    for step in range(steps):
        batch = cast(task.batch(step, "train", seed), dtype)
        at, key = seen[max(0, len(seen) - 1 - wrong.lag)], as_key(step_key(seed, step + 1))
        pieces = list(_pieces(batch, workers, wrong))
        if together:
            rows, places = jax.tree.map(lambda *xs: np.stack(xs), *pieces)
            stacked = local(at, stats, rows, key, places)
            found = [jax.tree.map(lambda x: x[i], stacked) for i in range(workers)]  # noqa: B023
        else:
            found = []
            for worker, (rows, places) in enumerate(pieces):
                own_key = jax.random.fold_in(key, worker) if wrong.rank_key else key
                found.append(local(at, stats, rows, own_key, places))
        gradients = [gradient for gradient, _ in found]
        weights = [weight for _, (weight, _) in found]
        stats = found[-1][1][1]
        updates, opt = optimizer.update(agree(gradients, weights, step), opt, params)
        params = optax.apply_updates(params, updates)
        seen.append(params)
    return [jax.device_get(p) for p in seen]


def local_gradient(experiment: Experiment, together: bool = False) -> Any:
    """Jitted (params, stats, rows, key, examples) -> (gradient of the sum, (weight, stats)).

    together: rows, examples and results are of all workers, with one more dimension in front.
    """
    task, model = experiment.task, experiment.model
    axis = "data" if together else None

    def gradient(params: Any, stats: Any, rows: Any, key: Any, examples: Any) -> Any:
        ctx = Context(key, True, examples, rows.get("weight"), data=axis)

        def loss_sum(params: Any) -> Any:
            x, after, aux = assembly.forward(model, params, stats, rows["inputs"], ctx)
            total, weight = task.loss(x, rows, ctx)
            total += aux.get("penalty", (0.0, 1.0))[0] * weight
            return total, (jnp.asarray(weight), after)

        return jax.grad(loss_sum, has_aux=True)(params)

    if together:
        return jax.jit(jax.vmap(gradient, in_axes=(None, None, 0, None, 0), axis_name=axis))
    return jax.jit(gradient)


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


def _pieces(batch: Any, workers: int, wrong: Wrong) -> list[tuple[Any, Any]]:
    """(rows, their places in the global batch) of each worker; a worker may have none left."""
    size = len(jax.tree.leaves(batch)[0]) - wrong.drop
    share = size if wrong.gathered else -(-size // workers)
    found = []
    for worker in range(workers):
        first = 0 if wrong.gathered else worker * share
        last = min(size, first + share) - wrong.trim
        if last > first:
            rows = jax.tree.map(lambda x: x[first:last], batch)  # noqa: B023 - used at once
            places = np.arange(first, last, dtype=np.int32)
            found.append((rows, places - (first if wrong.same_places else 0)))
    return found


def cast(tree: Any, dtype: Any) -> Any:
    """Floating leaves to dtype."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )
