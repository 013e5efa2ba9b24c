"""The schedules' executor against a ring all-reduce written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

import jddl
from benchmarks._pairs import Effort, Question, answer
from benchmarks._programs import compiled
from benchmarks.hand_written import ring


def rows(quick: bool) -> list[dict[str, Any]]:
    found = []
    for mebibytes in (1 / 16,) if quick else (4, 16):
        ours, x = compiled(lambda v: jddl.all_reduce(v, "data", "ring"), mebibytes)
        hand, again = (compiled(ring, mebibytes)[0] for _ in range(2))
        np.testing.assert_allclose(np.asarray(ours(x)), np.asarray(hand(x)), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(np.asarray(again(x)), np.asarray(hand(x)))
        found += answer(
            [Question(f"ring executor / hand-written, {mebibytes:g} MiB", 1.05)],
            lambda f=ours, x=x: f(x),
            lambda f=hand, x=x: f(x),
            lambda f=again, x=x: f(x),
            Effort(4, 4) if quick else Effort(60, 600),
        )
    return found
