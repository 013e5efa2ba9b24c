"""A/A: the executor's ring against itself, compiled anew. Says what the machine can judge."""

from __future__ import annotations

from typing import Any

import numpy as np

import jddl
from benchmarks._pairs import Effort, Question, answer
from benchmarks._programs import compiled


def rows(quick: bool) -> list[dict[str, Any]]:
    mebibytes = 1 / 16 if quick else 4
    made = [compiled(lambda v: jddl.all_reduce(v, "data", "ring"), mebibytes) for _ in range(3)]
    wanted = np.asarray(made[0][0](made[0][1]))
    for f, x in made:
        np.testing.assert_array_equal(np.asarray(f(x)), wanted)
    x = made[0][1]
    return answer(
        [Question(f"A/A: ring executor, {mebibytes:g} MiB, compiled twice", 1.05, both_ways=True)],
        *(lambda f=f: f(x) for f, _ in made),
        Effort(4, 4) if quick else Effort(60, 1200),
    )
