"""Losses and metrics on held-out data, spread over the mesh."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from jddl import assembly
from jddl.experiment import Experiment
from jddl.mesh import Own, size
from jddl.records import Context
from jddl.tasks._weights import pad

SPLITS = ("validation", "test")


def evaluate(experiment: Experiment, params: Any, stats: Any) -> dict[str, float]:
    """{'test_loss': ..., 'test_accuracy': ..., 'validation_...'} of whole-array parameters.

    A batch that does not divide over the workers is padded with rows that weigh 0, so every
    example counts once, whatever the mesh; the workers' sums are added on the host in float64.
    Batch normalisation takes the running statistics, and the model computes in the run's precision.

    Raises:
      ValueError: padding is needed, and the task ignores batch['weight'].
    """
    task, model, mesh = experiment.task, experiment.model, experiment.mesh
    strategy, runtime = experiment.strategy, experiment.runtime
    params, stats = runtime.put(jax.device_get((params, stats)), mesh, P())

    def local(params: Any, stats: Any, batch: Any) -> Any:
        context = Context(data=strategy.axes[0])
        found, _ = assembly.sums(task, model, params, stats, batch, context)
        return jax.tree.map(jnp.asarray, found)

    add_up = jax.jit(runtime.spmd(local, mesh, (P(), P(), strategy.batch), Own(strategy.axes)))
    found: dict[str, float] = {}
    for split in SPLITS:
        totals = []
        for index in range(task.num_batches[split]):
            batch = pad(task.batch(index, split, experiment.config.seed), size(mesh))
            by_worker = add_up(params, stats, runtime.put(batch, mesh, strategy.batch))
            totals.append(jax.tree.map(_total, jax.device_get(by_worker)))
        sums = jax.tree.map(lambda *parts: sum(parts), *totals)
        found |= {f"{split}_{name}": top / weight for name, (top, weight) in sums.items()}
    return found


def _total(by_worker: Any) -> float:
    return float(np.sum(by_worker, dtype=np.float64))
