"""What a finished run says about its speed, and its loss per byte of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from jddl import accounting, assembly
from jddl.experiment import Experiment, batch_shapes
from jddl.mesh import size


def seconds_a_step(intervals: Sequence[tuple[int, float]]) -> float | None:
    """The median over log intervals of seconds / steps; None where there is only one interval.

    The first interval of a process is left out: it contains compilation.

    Args:
      intervals: (steps, seconds) between two logged rows, in order, of this process alone.
    """
    rest = [seconds / steps for steps, seconds in intervals[1:]]
    return float(np.median(rest)) if rest else None


def speeds(experiment: Experiment, intervals: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Wall-clock rates of a run, from the times between its logged rows; {} where there are none.

    examples_per_second: batch_size / seconds a step. tokens_per_second: the same times the task's
    fact 'tokens_per_example', where it states one. model_flops_per_second: `model_flops` / seconds
    a step, of all workers together. These are wall times: two runs of one config differ in them.

    Args:
      intervals: see `seconds_a_step`.
    """
    seconds = seconds_a_step(intervals)
    if not seconds:
        return {}
    examples = experiment.config.batch_size / seconds
    found = {"examples_per_second": examples}
    if "tokens_per_example" in experiment.task.facts:
        found["tokens_per_second"] = examples * experiment.task.facts["tokens_per_example"]
    return found | {"model_flops_per_second": model_flops(experiment) / seconds}


def model_flops(experiment: Experiment) -> float:
    """FLOPs of one forward and backward pass of the global batch: what the model needs.

    Two for each multiply-add of a dot product or convolution, read off the jaxpr of the gradient
    of the loss without rematerialisation: what a step computes twice counts once, and so the rows
    that pad an uneven batch do not count. Kernels whose FLOPs `measure` does not know are left out.
    """
    task, model, mesh = experiment.task, experiment.model, experiment.mesh
    loss = partial(assembly.own_objective, task, model)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(model.init, key)
    batch = batch_shapes(experiment, size(mesh))
    flops = accounting.measure(jax.grad(loss), params, stats, batch, key, axes=mesh).flops or 0
    rows = jax.tree.leaves(batch)[0].shape[0]
    return flops * experiment.config.batch_size / rows


def bits_per_byte(held_out: Mapping[str, float], facts: Mapping[str, Any]) -> dict[str, float]:
    """{'validation_bits_per_byte': validation_loss / ln 2 / bytes a token}.

    The validation loss is a mean in nats a token; {} where the task does not state its fact
    'bytes_per_token' (bytes of the text / tokens that encode it; 1.0 where tokens are bytes).
    """
    if "bytes_per_token" not in facts or "validation_loss" not in held_out:
        return {}
    nats = held_out["validation_loss"] / facts["bytes_per_token"]
    return {"validation_bits_per_byte": nats / math.log(2)}
