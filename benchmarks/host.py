"""Host time of a training step against one written by hand.

A step's wall time, and of it the dispatch: until the call returns, with its results not yet ready.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks._pairs import Effort, Question, answer
from benchmarks._programs import Training, warm
from jddl.experiment import device_state

LIMIT = 50.0  # microseconds
LEARNING_RATE = 0.1


def rows(quick: bool) -> list[dict[str, Any]]:
    training = Training()
    assert not jax.tree.leaves(device_state(training.experiment).stats)
    ours, hand, again = training.ours(), training.hand(), training.hand()
    params = training.experiment.strategy.params_of(warm(ours)[0])[0]
    by_hand = warm(hand)[0]
    warm(again)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(
            a, b, rtol=0, atol=1e-5 * max(float(np.abs(b).max()), LEARNING_RATE)
        )
    return answer(
        [
            Question("step, ours - hand-written", LIMIT, "us"),
            Question("dispatch of a step, ours - hand-written", LIMIT, "us", "dispatch"),
        ],
        ours,
        hand,
        again,
        Effort(5, 5) if quick else Effort(1000, 10_000),
    )
