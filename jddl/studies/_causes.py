"""The likely cause of a wrong result.

A cause is not guessed from the size of a difference: a known mistake is made on purpose on one
device (`_mistakes`), and it is named where its numbers are those that the mesh produced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from jddl.experiment import Experiment
from jddl.records import OnLists
from jddl.studies import _explicit, _mistakes
from jddl.trees import leaf_names

MATCH = 1e-6  # relative, of what the step moved


def of_gradients(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    plain: optax.GradientTransformation,
    workers: int,
    bad: list[int],
    mesh: list[Any],
    right: list[Any],
) -> dict[int, str]:
    """{index of a bad leaf: cause}, from float64 trainings `mesh` and `right` (params by step)."""
    with jax.enable_x64(True):
        return _name(
            lambda steps: _mistakes.of_training(experiment, optimizer, plain, workers, steps),
            bad,
            mesh,
            right,
        )


def of_exchange(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    rule: OnLists,
    workers: int,
    bad: list[int],
    mesh: list[Any],
    right: list[Any],
    together: bool,
) -> dict[int, str]:
    """The same for lossy exchanges: mistakes in what the aggregator remembers."""
    local = _explicit.local_gradient(experiment, together)

    def made(steps: int) -> _mistakes.Made:
        for text, wrong in _mistakes.of_rule(rule):
            agree = _explicit.by_lists(wrong, right[0], workers)
            trained = _explicit.train(
                experiment, optimizer, workers, steps, np.float64, agree, local, together=together
            )
            yield text, trained

    with jax.enable_x64(True):
        return _name(made, bad, mesh, right)


def _name(
    mistakes: Callable[[int], _mistakes.Made], bad: list[int], mesh: list[Any], right: list[Any]
) -> dict[int, str]:
    began = {i: _first_bad_step(i, mesh, right) for i in bad}
    first = min(began.values())
    origin = [i for i in bad if began[i] == first]
    found = {i: _stands_still(i, mesh, right, first) for i in origin}
    every = range(len(jax.tree.leaves(right[0])))
    if all(_stands_still(i, mesh, right, first) for i in every):  # that may have a name
        found = dict.fromkeys(origin, "")
    for text, made in mistakes(first):
        for i in origin:
            if not found[i] and _matches(i, made, mesh, right, first):
                found[i] = text
        if all(found.values()):
            break
    when = "" if first == 1 else f" (right until step {first - 1})"
    causes = {i: (found[i] or _shape_of(i, mesh, right, first)) + when for i in origin}
    follows = f"follows from {leaf_names(right[0])[origin[0]]}"
    return {i: causes.get(i, f"{follows}, right until step {began[i] - 1}") for i in bad}


def _first_bad_step(i: int, mesh: list[Any], right: list[Any]) -> int:
    for step in range(1, len(mesh)):
        start, truth = (jax.tree.leaves(right[s])[i] for s in (step - 1, step))
        moved = np.max(np.abs(truth - start), initial=1e-300)
        if not np.max(np.abs(jax.tree.leaves(mesh[step])[i] - truth), initial=0.0) <= 1e-10 * moved:
            return step
    return len(mesh) - 1


def _stands_still(i: int, mesh: list[Any], right: list[Any], step: int) -> str:
    before, after = (jax.tree.leaves(mesh[s])[i] for s in (step - 1, step))
    moves = not np.array_equal(*(jax.tree.leaves(right[s])[i] for s in (step - 1, step)))
    return "this leaf is not updated" if moves and np.array_equal(before, after) else ""


def _matches(i: int, made: list[Any], mesh: list[Any], right: list[Any], step: int) -> bool:
    """Whether the mistake moves the leaf as the mesh does, far nearer than the right training."""
    start, truth = (jax.tree.leaves(right[s])[i] for s in (step - 1, step))
    seen, wrong = jax.tree.leaves(mesh[step])[i], jax.tree.leaves(made[step])[i]
    moved = np.max(np.abs(wrong - start), initial=0.0)
    apart = np.max(np.abs(seen - wrong), initial=0.0)
    error = np.max(np.abs(seen - truth), initial=0.0)
    return bool(apart <= min(MATCH * moved, 0.1 * error))


def _shape_of(i: int, mesh: list[Any], right: list[Any], step: int) -> str:
    """What can be said of one leaf's update when no known mistake fits."""
    start, truth = (jax.tree.leaves(right[s])[i] for s in (step - 1, step))
    moved, wanted = jax.tree.leaves(mesh[step])[i] - start, truth - start
    if not np.all(np.isfinite(moved)):
        return "not finite"
    where = np.abs(wanted) > 1e-6 * np.max(np.abs(wanted), initial=0.0)
    ratios = moved[where] / wanted[where]
    if len(ratios) and np.ptp(ratios) <= 1e-6 * abs(ratios[0]):
        return f"the update is {ratios[0]:.6g} times the right one"
    apart = (moved - wanted).reshape(-1)
    if apart.size > 1 and np.ptp(apart) <= 1e-6 * np.abs(apart).max():
        return f"a constant is added: {apart[0]:.3g} on every element of the update"
    return "no known mistake gives these numbers"
