"""The training loop, readable from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from jddl import accounting, checkpoints, gradients
from jddl.checkpoints import Keeper
from jddl.evaluation import evaluate
from jddl.experiment import (
    Experiment,
    abstract_inputs,
    batch_shapes,
    device_state,
    step_shapes,
    validate,
)
from jddl.guard import NotFiniteError, nonfinite
from jddl.mesh import Own
from jddl.network._price import step_seconds
from jddl.runs import Writer, check_free
from jddl.runtimes._devices import ensure_devices
from jddl.throughput import bits_per_byte, speeds
from jddl.trees import as_key, step_key
from jddl.watchdog import deadline

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
    resume_from: str | Path | None = None,
    dump_gradients: Sequence[int] = (),
) -> Result:
    """Train what a config describes; go on where an unfinished run in `workdir` was saved last.

    Args:
      config: a path, a mapping or a ConfigDict.
      workdir: the run's folder; None writes nothing.
      allow_import: packages from which dotted names may be imported.
      progress: called with each logged row.
      resume_from: another run's folder: start from its last checkpoint, whatever its mesh. A
        worker's own leaves then follow the rule that their method states, or are refused.
      dump_gradients: steps of which every worker's gradient is written to workdir/gradients, as the
        aggregator gets it (`gradients.dumper`); training is the same with and without.

    Raises:
      ValueError: a wrong config, too few devices, a workdir that holds another run.
      NotFiniteError: (a ValueError) with the step and the leaf, under on_nonfinite='stop'. Logged
        losses are looked at, and the state when it is saved and at the end.
    """
    experiment = validate(config, allow_import)
    config = experiment.config
    ensure_devices(experiment.runtime.devices(experiment.mesh))
    strategy, mesh, task = experiment.strategy, experiment.mesh, experiment.task
    put = experiment.runtime.put
    saved = _last_checkpoint(workdir, dict(config), resume_from)
    taken = 0 if saved is None else saved.step
    gradients.check_steps(dump_gradients, taken, config.steps, workdir)
    here = saved.about if saved is not None and resume_from is None else {}  # this run's own past
    state, first = start(experiment, saved)  # whatever it refuses, no folder has been made yet
    dump = gradients.dumper(experiment) if dump_gradients else None
    writer = Writer(workdir, dict(config), here.get("metrics_bytes", 0))

    layout = strategy.layout(device_state(experiment))
    step, sums = jitted_step(experiment), jax.tree.structure(step_shapes(experiment)[1])
    plan = {"steps": config.steps, "batch_size": config.batch_size}
    started = last = time.perf_counter() - here.get("seconds", 0.0)
    intervals: list[tuple[int, float]] = []  # (steps, seconds) between logged rows
    logged = first
    stops = config.on_nonfinite == "stop"
    collectives = ""
    if config.step_timeout:  # compiled ahead, so that compiling does not count as hanging
        step = step.lower(*abstract_inputs(experiment)).compile()
        collectives = collectives_in_order(experiment)
    with Keeper(writer.path, config.keep_last) as keeper:
        for number in range(first + 1, config.steps + 1):
            with deadline(config.step_timeout, number, collectives):
                batch = put(task.batch(number - 1, "train", config.seed), mesh, strategy.batch)
                raw = step_key(config.seed, number)
                if dump and writer.path and number in dump_gradients:
                    dump(gradients.file_of(writer.path, number), state, batch, raw)
                state, local = step(state, batch, raw)
                if config.step_timeout:
                    jax.block_until_ready(local)
            if number % config.log_every == 0 or number == config.steps:
                row = {"step": number, **means(local, sums)}
                now = time.perf_counter()
                writer.metric(row)
                writer.timing({"step": number, "seconds": now - started, "since_last": now - last})
                intervals.append((number - logged, now - last))
                last, logged = now, number
                if progress:
                    progress({**row, **plan, "seconds": now - started})
                if stops and not np.isfinite(row["loss"]):
                    raise NotFiniteError(_blame(experiment, saved, number, keeper.last))
            saves = config.save_every and number % config.save_every == 0
            if stops and (saves or number == config.steps) and nonfinite(state):
                raise NotFiniteError(_blame(experiment, saved, number, keeper.last))
            if saves:
                about = {
                    **checkpoints.record(state, layout, config.mesh),
                    "metrics_bytes": writer.metrics_bytes,
                    "seconds": time.perf_counter() - started,
                }
                keeper.save(number, checkpoints.leaves_of(state), about)
    wall = time.perf_counter() - started

    params, stats = strategy.params_of(state)
    held_out = evaluate(experiment, params, stats)
    writer.metric({"step": config.steps, **held_out})
    summary = {
        **task.facts,
        **held_out,
        **bits_per_byte(held_out, task.facts),
        **speeds(experiment, intervals),
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


def _last_checkpoint(workdir: Any, config: dict[str, Any], resume_from: Any) -> Any:
    """The checkpoint to start from, or None. A workdir that holds another run raises."""
    if workdir is not None:
        check_free(Path(workdir), config)
    if resume_from is None:
        return None if workdir is None else checkpoints.load(workdir)
    saved = checkpoints.load(resume_from)
    if saved is None:
        raise ValueError(f"{resume_from} holds no checkpoint: train it with save_every > 0")
    if saved.step >= config["steps"]:
        raise ValueError(
            f"{resume_from} was saved after step {saved.step}: steps={config['steps']} leaves "
            "nothing to train"
        )
    return saved


def start(experiment: Experiment, saved: Any) -> tuple[Any, int]:
    """(whole state, steps done): from a checkpoint, or initialised."""
    strategy, mesh, runtime = experiment.strategy, experiment.mesh, experiment.runtime
    layout = strategy.layout(device_state(experiment))
    if saved is not None:
        state = checkpoints.restore(saved, abstract_inputs(experiment)[0], layout, mesh)
        return runtime.put(state, mesh, layout), saved.step
    params, stats = experiment.model.init(jax.random.key(experiment.config.seed))
    return jax.jit(runtime.spmd(strategy.init, mesh, (P(), P()), layout))(params, stats), 0


def _blame(experiment: Experiment, saved: Any, until: int, kept: int | None) -> str:
    """Take the steps again, one by one, to say after which the state is not finite, and where."""
    config, put = experiment.config, experiment.runtime.put
    state, first = start(experiment, saved)
    step = jitted_step(experiment)
    good = "no checkpoint is kept (save_every)"
    if kept is not None:
        good = f"the last good checkpoint is that of step {kept}"
    for number in range(first + 1, until + 1):
        batch = experiment.task.batch(number - 1, "train", config.seed)
        batch = put(batch, experiment.mesh, experiment.strategy.batch)
        state, _ = step(state, batch, step_key(config.seed, number))
        if leaf := nonfinite(state):
            return f"not finite after step {number}, first in {leaf}; training stopped; {good}"
    return f"the loss is not finite at step {until}, the state is; training stopped; {good}"


def collectives_in_order(experiment: Experiment) -> str:
    """The step's collectives, one line each, in program order."""
    operations = measured_step(experiment).operations
    lines = [
        f"  {i + 1}. {o.primitive} over {', '.join(o.axes)}: {o.operand_bytes} bytes, {o.calls} x"
        for i, o in enumerate(operations)
    ]
    return "\n".join(["the step's collectives in order:", *(lines or ["  none"])])


def jitted_step(experiment: Experiment) -> Any:
    """The training step on whole arrays: (state, batch, raw key) -> (state, f32[workers, sums]).

    The local sums of a worker come back as one vector, since every array that is handed over on
    every device costs host time. `means` takes them apart.
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


def means(packed: Any, structure: Any) -> dict[str, float]:
    """Means of a step's local sums: add the sums and the weights of all workers, then divide.

    Args:
      packed: f32[workers, sums].
      structure: of the {name: (sum, weight)} that was packed.
    """
    totals = np.asarray(jax.device_get(packed), np.float64).sum(axis=0).tolist()
    pairs = jax.tree.unflatten(structure, totals)
    return {name: top / weight for name, (top, weight) in pairs.items()}
