"""The compiled training step holds nothing that a hand-written one does not."""

import re
from collections import Counter

import jax

import jddl
from benchmarks import hand_written
from jddl.experiment import abstract_inputs
from jddl.loop import compiled_step


def operations(compiled):
    """(what is executed one by one, by opcode; everything, the insides of fusions too)."""
    text = compiled.as_text()
    (entry,) = (block for block in text.split("\n\n") if "ENTRY" in block)
    pattern = r"= (?:\([^=]*?\)|\S+) ([a-z][\w\-]*)\("
    return Counter(re.findall(pattern, entry)), Counter(re.findall(pattern, text))


def test_the_step_has_a_hand_written_steps_operations():
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    state, batch, _ = abstract_inputs(experiment)
    opt = jax.eval_shape(hand_written.OPTIMIZER.init, state.params)
    step = hand_written.step(experiment.model, experiment.task)
    by_hand, inside_by_hand = operations(step.lower(state.params, opt, batch).compile())
    ours, inside = operations(compiled_step(experiment))
    assert ours == by_hand and ours["collective-permute"] == 14 and ours["parameter"] == 14
    # Inside fusions scalar arithmetic differs: chunk indices, one scale a leaf. No array moves more.
    for moved in ("dot", "scatter", "gather", "dynamic-slice", "dynamic-update-slice", "reduce",
                  "concatenate", "pad", "iota"):  # fmt: skip
        assert inside[moved] == inside_by_hand[moved], moved
    assert "all-reduce" not in inside
