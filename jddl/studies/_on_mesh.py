"""A few steps of a config's own strategy, kept step by step, in either precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jddl.experiment import Experiment, device_state
from jddl.mesh import Own, P, broadcast, is_layout
from jddl.studies._explicit import cast
from jddl.trees import as_key, leaf_names, step_key


def train(experiment: Experiment, steps: int, dtype: Any) -> list[Any]:
    """Parameters (host, whole arrays) before the first and after each step."""
    start, _ = cast(experiment.model.init(jax.random.key(experiment.config.seed)), dtype)
    states = _run(experiment, steps, dtype, lambda layout: layout)
    return [jax.device_get(start), *(jax.device_get(_params(experiment, s)) for s in states)]


def _params(experiment: Experiment, state: Any) -> Any:
    return experiment.strategy.params_of(state)[0]


def replicas(experiment: Experiment, steps: int) -> dict[str, str]:
    """Leaves in which replicas part: {leaf: 'worker 3 differs from worker 0 after step 1'}.

    Each output that the layout calls replicated over some axes is returned by every worker along
    them and handed back as that worker's own input, so drift shows and grows.
    """
    mesh = experiment.mesh

    def spread(layout: Any) -> Any:
        if isinstance(layout, Own):
            return layout
        entries = [(e,) if isinstance(e, str) else e or () for e in layout]
        used = {axis for entry in entries for axis in entry}
        return Own(tuple(a for a in mesh if a not in used), layout)

    layouts = _layout(experiment)
    wanted = jax.tree.leaves(layouts, is_leaf=is_layout)
    found: dict[str, str] = {}
    for step, state in enumerate(_run(experiment, steps, np.float32, spread)):
        leaves = jax.tree.leaves(jax.device_get(state))
        for name, leaf, layout in zip(leaf_names(state), leaves, wanted, strict=True):
            if isinstance(layout, Own) or name in found:
                continue
            axes = spread(layout).axes
            rows = np.asarray(leaf).reshape(-1, *leaf.shape[len(axes) :])
            bits = rows.reshape(len(rows), -1).view(np.uint8)
            parted = np.flatnonzero((bits != bits[:1]).any(axis=1))
            if len(parted):
                found[name] = f"worker {parted[0]} differs from worker 0 after step {step + 1}"
    return found


def _layout(experiment: Experiment) -> Any:
    state = device_state(experiment)
    return broadcast(experiment.strategy.layout(state), state)


def _run(experiment: Experiment, steps: int, dtype: Any, change: Any) -> Iterator[Any]:
    """The state (whole arrays) after each step, with every leaf's layout changed."""
    strategy, mesh, runtime = experiment.strategy, experiment.mesh, experiment.runtime
    seed = experiment.config.seed
    params, stats = cast(experiment.model.init(jax.random.key(seed)), dtype)
    layout = jax.tree.map(change, _layout(experiment), is_leaf=is_layout)
    state = jax.jit(runtime.spmd(strategy.init, mesh, (P(), P()), layout))(params, stats)
    out = (layout, Own(strategy.axes))
    step = jax.jit(runtime.spmd(strategy.step, mesh, (layout, strategy.batch, P()), out))
    for number in range(steps):
        batch = cast(experiment.task.batch(number, "train", seed), dtype)
        key = as_key(step_key(seed, number + 1))
        state, _ = step(state, runtime.put(batch, mesh, strategy.batch), key)
        yield state
