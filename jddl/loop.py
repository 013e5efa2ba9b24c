"""The training loop, readable from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from jddl import accounting, assembly
from jddl.experiment import (
    Experiment,
    abstract_inputs,
    batch_shapes,
    device_state,
    step_shapes,
    validate,
)
from jddl.mesh import Own
from jddl.network._price import step_seconds
from jddl.records import Context
from jddl.runs import Writer
from jddl.runtimes._devices import ensure_devices
from jddl.trees import as_key, step_key

Progress = Callable[[dict[str, Any]], None]


class Result(NamedTuple):
    """What `train` returns: summary.json, the rows of metrics.jsonl, the final parameters."""

    summary: dict[str, Any]
    history: list[dict[str, Any]]
    params: Any


def train(
    config: Any,
    workdir: str | Path | None = None,
    allow_import: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Result:
    """Train what a config describes.

    Args:
      config: a path, a mapping or a ConfigDict.
      workdir: the run's folder; None writes nothing.
      allow_import: packages from which dotted names may be imported.
      progress: called with each logged row.

    Raises:
      ValueError: a wrong config, too few devices, a workdir that holds another run.
    """
    experiment = validate(config, allow_import)
    config = experiment.config
    ensure_devices(experiment.runtime.devices(experiment.mesh))
    writer = Writer(workdir, dict(config))
    strategy, mesh, task = experiment.strategy, experiment.mesh, experiment.task
    spmd, put = experiment.runtime.spmd, experiment.runtime.put

    params, stats = experiment.model.init(jax.random.key(config.seed))
    layout = strategy.layout(device_state(experiment))
    state = jax.jit(spmd(strategy.init, mesh, (P(), P()), layout))(params, stats)
    step, sums = jitted_step(experiment), jax.tree.structure(step_shapes(experiment)[1])

    plan = {"steps": config.steps, "batch_size": config.batch_size}
    started = last = time.perf_counter()
    for number in range(1, config.steps + 1):
        batch = put(task.batch(number - 1, "train", config.seed), mesh, strategy.batch)
        state, local = step(state, batch, step_key(config.seed, number))
        if number % config.log_every == 0 or number == config.steps:
            row = {"step": number, **_means(local, sums)}
            now = time.perf_counter()
            writer.metric(row)
            writer.timing({"step": number, "seconds": now - started, "since_last": now - last})
            last = now
            if progress:
                progress({**row, **plan, "seconds": now - started})
            if not np.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {number}: training stopped")
    wall = time.perf_counter() - started

    params, stats = strategy.params_of(state)
    held_out = evaluate(experiment, params, stats)
    writer.metric({"step": config.steps, **held_out})
    summary = {
        **held_out,
        "final_loss": writer.metrics[-2]["loss"],
        "steps": config.steps,
        **traffic(experiment),
        "wall_seconds": round(wall, 3),
        "runtime": config.runtime,
        "mesh": config.mesh,
        "seed": config.seed,
        "jax_version": jax.__version__,
    }
    writer.summary(summary)
    return Result(summary, writer.metrics, params)


def jitted_step(experiment: Experiment) -> Any:
    """The training step on whole arrays: (state, batch, raw key) -> (state, f32[workers, sums]).

    The local sums of a worker come back as one vector, since every array that is handed over on
    every device costs host time. `_means` takes them apart.
    """
    strategy = experiment.strategy
    layout = strategy.layout(device_state(experiment))

    def step(state: Any, batch: Any, raw: Any) -> tuple[Any, Any]:
        state, local = strategy.step(state, batch, as_key(raw))
        return state, jnp.stack(jax.tree.leaves(local))

    run = experiment.runtime.spmd(
        step,
        experiment.mesh,
        (layout, strategy.batch, P()),
        (layout, Own(strategy.axes)),
    )
    return jax.jit(run, donate_argnums=0)


def compiled_step(experiment: Experiment) -> Any:
    """The step compiled for the devices at hand, for its HLO."""
    return jitted_step(experiment).lower(*abstract_inputs(experiment)).compile()


def evaluate(experiment: Experiment, params: Any, stats: Any) -> dict[str, float]:
    """{'test_loss': ..., 'test_accuracy': ..., 'validation_...'} on one device."""
    task, model = experiment.task, experiment.model
    params, stats = jax.device_get((params, stats))
    add_up = jax.jit(lambda batch: assembly.sums(task, model, params, stats, batch, Context()))
    found: dict[str, float] = {}
    for split in ("validation", "test"):
        batches = _batches(experiment, split)
        total = jax.tree.map(lambda *xs: sum(map(float, xs)), *[add_up(b) for b in batches])
        found |= {f"{split}_{name}": top / weight for name, (top, weight) in total.items()}
    return found


def traffic(experiment: Experiment) -> dict[str, Any]:
    """Bytes, rounds and modelled time of one step, read off its jaxpr."""
    measured = measured_step(experiment)
    return {
        "payload_bytes": measured.payload_bytes,
        "sent_bytes": measured.sent_bytes,
        "received_bytes": measured.received_bytes,
        "rounds": measured.rounds,
        "modelled_step_seconds": step_seconds(measured, experiment.cluster),
        "cluster": experiment.cluster.name,
    }


def measured_step(experiment: Experiment) -> accounting.Measurement:
    """The accounting of one worker's training step."""
    return accounting.measure(
        experiment.strategy.step,
        device_state(experiment),
        batch_shapes(experiment, experiment.mesh["data"]),
        jax.eval_shape(lambda: jax.random.key(0)),
        axes=experiment.mesh,
    )


def _batches(experiment: Experiment, split: str) -> Iterator[Any]:
    for index in range(experiment.task.num_batches[split]):
        yield experiment.task.batch(index, split, experiment.config.seed)


def _means(packed: Any, structure: Any) -> dict[str, float]:
    """Means of a step's local sums: add the sums and the weights of all workers, then divide.

    Args:
      packed: f32[workers, sums].
      structure: of the {name: (sum, weight)} that was packed.
    """
    totals = np.asarray(jax.device_get(packed), np.float64).sum(axis=0).tolist()
    pairs = jax.tree.unflatten(structure, totals)
    return {name: top / weight for name, (top, weight) in pairs.items()}
