"""The compiled training step holds nothing that a hand-written one does not."""

import re
from collections import Counter

import jax

import jddl
from benchmarks import hand_written
from jddl.experiment import abstract_inputs
from jddl.loop import compiled_step

# Constants and copies of scalars are not counted: the step counter and the metrics' weights.
LIGHT = {"parameter", "constant", "copy", "bitcast", "tuple", "get-tuple-element", "fusion"}


def operations(compiled):
    """Every operation of the whole program but the light ones, by opcode."""
    found = Counter(re.findall(r"= \S+ ([a-z][\w\-]*)\(", compiled.as_text()))
    return {k: v for k, v in found.items() if k not in LIGHT}, found["fusion"]


def test_the_step_has_a_hand_written_steps_operations():
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    state, batch, _ = abstract_inputs(experiment)
    opt = jax.eval_shape(hand_written.OPTIMIZER.init, state.params)
    step = hand_written.step(experiment.model, experiment.task)
    by_hand, hand_fusions = operations(step.lower(state.params, opt, batch).compile())
    ours, fusions = operations(compiled_step(experiment))
    for heavy in ("dot", "collective-permute", "scatter", "gather", "dynamic-update-slice"):
        assert ours[heavy] == by_hand[heavy], heavy
    for moved in ("dynamic-slice", "concatenate", "pad", "reduce", "iota"):
        assert ours[moved] == by_hand[moved], moved
    assert ours["collective-permute"] == 14 and "all-reduce" not in ours
    assert fusions <= hand_fusions + 1  # the packed metrics
