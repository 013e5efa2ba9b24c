"""Sent bytes of a config's step in three ways: jaxpr, compiled program, closed form."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import jax
import numpy as np

from jddl import accounting, assembly, catalog, spec
from jddl.collectives._api import schedule
from jddl.experiment import Experiment, batch_shapes, device_state
from jddl.loop import compiled_step, measured_step
from jddl.mesh import Own, broadcast, is_layout, size
from jddl.records import Compressor, Context


def bytes_three_ways(experiment: Experiment) -> list[tuple[str, bool, str]]:
    """(what, whether it equals the jaxpr's sent bytes, both numbers) of the HLO and a closed form.

    A way that does not apply is left out: a vmapped program holds no collective, and an aggregator
    that nobody wrote a formula for has no closed form, nor has a model that communicates.
    """
    traced = measured_step(experiment).sent_bytes
    found = [("jaxpr", traced)]
    if experiment.runtime.devices(experiment.mesh) == size(experiment.mesh):
        found.append(("HLO", accounting.measure_hlo(compiled_step(experiment)).sent_bytes))
    expected = closed_form(experiment)
    if expected is not None:
        found.append(("closed form", float(sum(expected.values()))))
    return [
        (f"sent bytes, jaxpr = {name}", other == traced, f"jaxpr {traced}, {name} {other}")
        for name, other in found[1:]
    ]


def closed_form(experiment: Experiment) -> dict[tuple[str, tuple[str, ...]], Fraction] | None:
    """{(JAX's primitive, axes): exact bytes that the busiest worker sends in one step}, or None.

    From the parts' own descriptions: a dense or summed payload of M bytes takes the schedule's
    messages (native: 2 (n-1)/n M), a gathered one (n-1) M; the global weight, where it travels, is
    one more scalar (under float16 also that of each micro-batch), and so is the flag of
    `on_nonfinite='skip'` where workers hold their own state, and float16's flag of an overflow.
    """
    config, n = experiment.config, size(experiment.mesh)
    call = spec.parse_call(config.aggregator)
    if call.name not in ("mean", "compressed", "error_feedback"):
        return None
    if any(part.dotted for part in spec.calls(call)):  # somebody else's code
        return None
    if communicates(experiment):
        return None
    params, _ = jax.eval_shape(lambda: experiment.model.init(jax.random.key(0)))
    vectors: dict[Any, int] = {}
    for leaf in jax.tree.leaves(params):
        vectors[leaf.dtype] = vectors.get(leaf.dtype, 0) + leaf.size
    reduced: list[tuple[int, int]] = []  # (elements, bytes each) of every summed vector
    gathered = 0
    if _weight_travels(experiment):
        seeds = config.accumulate if config.precision == "float16" else 0  # of each micro-batch
        reduced += [(1, 4)] * (1 + seeds)
    if config.precision == "float16":
        reduced.append((1, 4))
    compressor = _compressor(call)
    if compressor is None:
        reduced += [(d, t.itemsize) for t, d in vectors.items()]
    else:
        for payload in _payloads(compressor, _pieces(compressor, params, vectors)):
            if compressor.combine == "sum":
                reduced.append((payload.size, payload.dtype.itemsize))
            else:
                gathered += payload.size * payload.dtype.itemsize
    carrier = "psum" if _native(config.all_reduce) else "ppermute"
    found = dict.fromkeys(("psum", "ppermute", "all_gather"), Fraction(0))
    for elements, width in reduced:
        found[carrier] += _all_reduce(config.all_reduce, n, elements, width)
    found["all_gather"] += (n - 1) * gathered
    if config.on_nonfinite == "skip" and _has_own_state(experiment):
        found["psum"] += _all_reduce("native", n, 1, 4)
    return {(name, ("data",)): sent for name, sent in found.items() if sent}


def communicates(experiment: Experiment) -> bool:
    """Whether the model sums something over the workers: batch statistics, a balancing loss."""
    task, model = experiment.task, experiment.model
    loss = partial(assembly.own_objective, task, model)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(model.init, key)
    batch = batch_shapes(experiment, size(experiment.mesh))
    axes = {"data": max(2, size(experiment.mesh))}
    return bool(accounting.measure(loss, params, stats, batch, key, axes=axes).sent_bytes)


def _has_own_state(experiment: Experiment) -> bool:
    state = device_state(experiment)
    layouts = broadcast(experiment.strategy.layout(state), state)
    return any(isinstance(x, Own) for x in jax.tree.leaves(layouts, is_leaf=is_layout))


def _native(algorithm: str) -> bool:
    return spec.parse_call(algorithm).name == "native"


def _pieces(compressor: Compressor, params: Any, vectors: dict[Any, int]) -> list[Any]:
    """Shapes of what is compressed one by one."""
    if compressor.scope == "flat":
        return [jax.ShapeDtypeStruct((d,), t) for t, d in vectors.items()]
    return jax.tree.leaves(params)


def _payloads(compressor: Compressor, pieces: list[Any]) -> list[Any]:
    """Shapes of every array that a worker contributes."""
    encode = lambda x: compressor.compress(x, compressor.init(x), jax.random.key(0))[0]  # noqa: E731
    return [array for piece in pieces for array in jax.tree.leaves(jax.eval_shape(encode, piece))]


def _all_reduce(algorithm: str, n: int, elements: int, width: int) -> Fraction:
    if _native(algorithm):
        return Fraction(2 * (n - 1) * elements * width, n)
    made = schedule(algorithm, n)
    sent = np.zeros(n, int)
    for message in made.messages:
        sent[message.src] += len(message.chunks)
    return Fraction(int(sent.max()) * -(-elements // made.chunks) * width)


def _compressor(call: spec.Spec) -> Compressor | None:
    nested = [*call.positional, *dict(call.keywords).values()]
    for value in nested:
        if isinstance(value, spec.Spec):
            made = catalog.make("compressors", value)
            assert isinstance(made, Compressor)
            return made
    return None


def _weight_travels(experiment: Experiment) -> bool:
    """Whether the task's weight is an array: then its sum over the workers is asked for."""
    travels: list[bool] = []

    def look(params: Any, stats: Any, batch: Any) -> Any:
        outputs, *_ = assembly.forward(experiment.model, params, stats, batch["inputs"], Context())
        _, weight = experiment.task.loss(outputs, batch, Context(train=True))
        travels.append(not isinstance(weight, (int, float)))
        return ()

    batch = batch_shapes(experiment, size(experiment.mesh))
    params, stats = jax.eval_shape(lambda: experiment.model.init(jax.random.key(0)))
    jax.eval_shape(look, params, stats, batch)
    return travels[0]
