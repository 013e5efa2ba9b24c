"""A/A: the training step against itself, compiled anew. Says what the machine can judge."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks._pairs import Effort, Question, answer
from benchmarks._programs import Training, warm


def rows(quick: bool) -> list[dict[str, Any]]:
    training = Training()
    steps = [training.ours() for _ in range(3)]
    first, *others = [jax.tree.leaves(warm(step)) for step in steps]
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)
    return answer(
        [Question("A/A: training step, compiled twice", 1.05, both_ways=True)],
        *steps,
        Effort(5, 5) if quick else Effort(500, 10_000),
    )
