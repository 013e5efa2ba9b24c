"""A few steps of a config's own strategy, kept step by step, in either precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jddl.experiment import Experiment, device_state
from jddl.mesh import Own, P, broadcast, is_layout
from jddl.studies._explicit import cast
from jddl.trees import leaf_names


def train(experiment: Experiment, steps: int, dtype: Any) -> list[Any]:
    """Parameters (host, whole arrays) before the first and after each step."""
    seen, _ = _run(experiment, steps, dtype, lambda layout: layout)
    return seen


def replicas(experiment: Experiment, steps: int) -> dict[str, str]:
    """Leaves in which replicas part: {leaf: 'worker 3 differs from worker 0 after step 1'}.

    Each output that the layout calls replicated over some axes is returned by every worker along
    them and handed back as that worker's own input, so drift shows and grows.
    """
    mesh = experiment.mesh

    def spread(layout: Any) -> Any:
        if isinstance(layout, Own):
            return layout
        used = {
            a for entry in layout for a in ((entry,) if isinstance(entry, str) else entry or ())
        }
        return Own(tuple(a for a in mesh if a not in used), layout)

    layouts = _layout(experiment)
    wanted = jax.tree.leaves(layouts, is_leaf=is_layout)
    found: dict[str, str] = {}
    _, states = _run(experiment, steps, np.float32, spread)
    for step, state in enumerate(states):
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


def _run(
    experiment: Experiment, steps: int, dtype: Any, change: Any
) -> tuple[list[Any], list[Any]]:
    strategy, mesh, runtime = experiment.strategy, experiment.mesh, experiment.runtime
    seed = experiment.config.seed
    params, stats = cast(experiment.model.init(jax.random.key(seed)), dtype)
    natural = _layout(experiment)
    layout = jax.tree.map(change, natural, is_leaf=is_layout)
    state = jax.jit(runtime.spmd(strategy.init, mesh, (P(), P()), layout))(params, stats)
    out = (layout, Own(strategy.axes))
    step = jax.jit(runtime.spmd(strategy.step, mesh, (layout, strategy.batch, P()), out))
    key = runtime.put(jax.random.key(seed + 1), mesh, P())
    seen, states = [jax.device_get(params)], []
    for number in range(steps):
        batch = cast(experiment.task.batch(number, "train", seed), dtype)
        state, _ = step(state, runtime.put(batch, mesh, strategy.batch), key)
        states.append(state)
        rows = strategy.params_of(state)[0]
        if layout is natural or not isinstance(rows, Mapping):
            seen.append(jax.device_get(rows))
    return seen, states
