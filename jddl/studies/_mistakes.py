"""Known mistakes of distributed training, each made on purpose on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jddl.experiment import Experiment
from jddl.records import OnLists
from jddl.studies import _explicit
from jddl.studies._explicit import Agree, whole

Made = Iterator[tuple[str, list[Any]]]  # what the mistake is, parameters step by step


def of_training(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    plain: optax.GradientTransformation,
    n: int,
    steps: int,
) -> Made:
    """Trainings of n explicit workers with one mistake each, in float64.

    Args:
      optimizer: the right one; `plain` is the same without clipping.
    """
    local = _explicit.local_gradient(experiment)

    def made(agree: Agree = whole, tx: Any = optimizer, **wrong: Any) -> list[Any]:
        how = _explicit.Wrong(**wrong)
        return _explicit.train(experiment, tx, n, steps, np.float64, agree, local, how)

    for text, agree in _wrong_sums(n):
        yield text, made(agree)
    rest = experiment.config.batch_size % n or 1
    yield f"the last {rest} of the batch's examples dropped", made(drop=rest)
    yield "the last example of each worker is dropped", made(trim=1)
    yield "noise is the same on all workers, not each example's own", made(same_places=True)
    yield "noise depends on the number of workers: the rank is in its key", made(rank_key=True)
    yield (
        "noise differs between workers that must draw the same",
        made(rank_key=True, gathered=True),
    )
    yield "the gradient of the step before is used", made(_late())
    yield "stale parameters: gradients are taken at those of the step before", made(lag=1)
    yield "the optimiser's state is reset each step", made(tx=_forgetful(optimizer))
    yield "the update is applied twice", made(tx=_twice(optimizer))
    yield (
        f"the optimiser is not elementwise, but sees shards of 1/{n} of the parameters",
        made(tx=_on_shards(optimizer, n)),
    )
    norm = experiment.config.clip_norm
    if norm:
        yield "each worker's own gradient is clipped, not the mean", made(_clipped(norm), plain)
        yield "nothing is clipped", made(tx=plain)
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        text = f"the gradient passes through {jnp.dtype(dtype).name}"
        yield text, made(_through(dtype))
    for shift in range(1, n):
        text = f"another rank's chunk: the flat gradient's chunks are shifted by {shift}"
        yield text, made(_shifted(shift, n))


def of_rule(rule: OnLists) -> Iterator[tuple[str, OnLists]]:
    """An aggregator's rule with a mistake in what it remembers."""

    def forget(gradients: list[Any], state: Any, step: int) -> Any:
        agreed, _ = rule.update(gradients, rule.init(gradients[0], len(gradients)), step)
        return agreed, state

    def same_step(gradients: list[Any], state: Any, step: int) -> Any:
        return rule.update(gradients, state, 0)

    def sum_instead(gradients: list[Any], state: Any, step: int) -> Any:
        agreed, state = rule.update(gradients, state, step)
        return [jax.tree.map(lambda x: len(gradients) * x, a) for a in agreed], state

    def exact(gradients: list[Any], state: Any, step: int) -> Any:
        agreed = jax.tree.map(lambda *xs: sum(xs) / len(xs), *gradients)
        return [agreed] * len(gradients), state

    yield "the memory is reset each step: what is dropped is never sent", OnLists(rule.init, forget)
    yield "the random key is the same at each step", OnLists(rule.init, same_step)
    yield "a sum where the mean is meant", OnLists(rule.init, sum_instead)
    yield "nothing is compressed", OnLists(rule.init, exact)


def _wrong_sums(n: int) -> Iterator[tuple[str, Agree]]:
    yield f"the gradient is {n} times too large: a sum where the mean is meant", _scaled(n)
    yield f"the gradient is {n} times too small: divided by n twice", _scaled(1 / n)
    yield "the gradient has the wrong sign", _scaled(-1.0)
    yield "mean of the workers' means: their weights differ", _mean_of_means
    for i in range(n):
        others = [j for j in range(n) if j != i]
        yield f"no sum over the workers: worker {i}'s own gradient is used", _mean_over([i])
        yield f"the examples of worker {i} are left out", _mean_over(others)
        yield f"the gradient of worker {i} is left out of the sum", _sum_over(others)
        yield f"worker {i} is counted twice", _sum_over([*range(n), i])
    for size in (g for g in range(2, n) if n % g == 0):
        for start in range(0, n, size):
            group = list(range(start, start + size))
            text = f"wrong group: workers {start} to {start + size - 1} of {n}"
            yield f"{text}, their mean", _mean_over(group)
            yield f"{text}, their sum over n", _sum_over(group)


def _mean_over(workers: list[int]) -> Agree:
    return lambda gs, ws, step: whole([gs[i] for i in workers], [ws[i] for i in workers], step)


def _sum_over(workers: list[int]) -> Agree:
    return lambda gs, ws, step: jax.tree.map(
        lambda *xs: sum(xs) / sum(ws), *[gs[i] for i in workers]
    )


def _changed(change: Callable[[Any], Any]) -> Agree:
    return lambda *args: jax.tree.map(change, whole(*args))


def _through(dtype: Any) -> Agree:
    return _changed(lambda g: g.astype(dtype).astype(g.dtype))


def _scaled(factor: float) -> Agree:
    return _changed(partial(jnp.multiply, factor))


def _mean_of_means(gradients: list[Any], weights: list[Any], step: int) -> Any:
    means = [whole([g], [w], step) for g, w in zip(gradients, weights, strict=True)]
    return jax.tree.map(lambda *xs: sum(xs) / len(xs), *means)


def _shifted(shift: int, n: int) -> Agree:
    return lambda *args: _rolled(whole(*args), shift, n)


def _late() -> Agree:
    before: list[Any] = []

    def agree(*args: Any) -> Any:
        before.append(whole(*args))
        return before[-2] if len(before) > 1 else jax.tree.map(jnp.zeros_like, before[0])

    return agree


def _clipped(norm: float) -> Agree:
    def agree(gradients: list[Any], weights: list[Any], step: int) -> Any:
        total, n = sum(weights), len(gradients)
        scaled = [jax.tree.map(lambda g: g * n / total, tree) for tree in gradients]
        factors = [norm / jnp.maximum(norm, optax.tree.norm(tree)) for tree in scaled]
        clipped = [
            jax.tree.map(lambda g, f=f: g * f, tree)
            for tree, f in zip(scaled, factors, strict=True)
        ]
        return jax.tree.map(lambda *xs: sum(xs) / n, *clipped)

    return agree


def _forgetful(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return tx.update(updates, tx.init(params), params)[0], state

    return optax.GradientTransformation(tx.init, update)


def _twice(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        updates, state = tx.update(updates, state, params)
        return jax.tree.map(lambda u: 2 * u, updates), state

    return optax.GradientTransformation(tx.init, update)


def _on_shards(tx: optax.GradientTransformation, n: int) -> optax.GradientTransformation:
    """The optimiser on each of n pieces of the flat parameters by itself."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        flat, unravel = ravel_pytree(updates)
        parts = zip(_cut(updates, n), state, _cut(params, n), strict=True)
        each = [tx.update(u, s, p) for u, s, p in parts]
        return unravel(jnp.concatenate([u for u, _ in each])[: flat.size]), [s for _, s in each]

    return optax.GradientTransformation(lambda p: [tx.init(x) for x in _cut(p, n)], update)


def _cut(tree: Any, n: int) -> list[Any]:
    flat, _ = ravel_pytree(tree)
    length = -(-flat.size // n)
    return list(jnp.pad(flat, (0, n * length - flat.size)).reshape(n, length))


def _rolled(tree: Any, shift: int, n: int) -> Any:
    flat, unravel = ravel_pytree(tree)
    return unravel(jnp.roll(jnp.stack(_cut(tree, n)), shift, axis=0).reshape(-1)[: flat.size])
