"""Time ours, the reference and the reference again in turns until they can be judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks._judge import judge_amount, judge_ratio
from jddl.studies.bench_timing import alternate


class Effort(NamedTuple):
    """Repetitions that are added at a time, and how many there are at most."""

    step: int
    most: int


class Question(NamedTuple):
    """One row of a result.

    unit 'ratio': ours / reference; 'us' and 's': ours - reference. time 'whole' or 'dispatch' (see
    jddl.studies.bench_timing.Times). both_ways: the reference may be the slower one, then the
    inverse ratio is judged. limit None: the ratio is reported, nothing is judged.
    """

    name: str
    limit: float | None
    unit: Literal["ratio", "us", "s"] = "ratio"
    time: Literal["whole", "dispatch"] = "whole"
    both_ways: bool = False


def answer(
    questions: list[Question],
    ours: Callable[[], Any],
    reference: Callable[[], Any],
    again: Callable[[], Any],
    effort: Effort,
) -> list[dict[str, Any]]:
    """A row for each question, all from the same repetitions."""
    rng = np.random.default_rng(0)
    calls = {"ours": ours, "reference": reference, "again": again}
    seconds: dict[str, dict[str, np.ndarray]] = {}
    while True:
        for name, times in alternate(calls, effort.step, rng).items():
            before = seconds.get(name, {"whole": np.empty(0), "dispatch": np.empty(0)})
            seconds[name] = {k: np.concatenate([before[k], getattr(times, k)]) for k in before}
        rows = [_row(q, {k: v[q.time] for k, v in seconds.items()}, rng) for q in questions]
        enough = all(row["verdict"] != "not judged" for row in rows)
        if enough or rows[0]["pairs"] + effort.step > effort.most:
            return [r | {"verdict": "reported"} if r["limit"] is None else r for r in rows]


def _row(question: Question, seconds: dict[str, np.ndarray], rng: Any) -> dict[str, Any]:
    ours, reference, again = (seconds[name] for name in ("ours", "reference", "again"))
    if question.unit == "ratio":
        ratios, control = ours / reference, again / reference
        if question.both_ways and np.median(ratios) < 1:
            ratios, control = 1 / ratios, 1 / control
        limit = float("inf") if question.limit is None else question.limit
        judged = judge_ratio(ratios, control, limit, rng)
    else:
        assert question.limit is not None
        scale = {"us": 1e6, "s": 1.0}[question.unit]
        judged = judge_amount(
            (ours - reference) * scale, (again - reference) * scale, question.limit, rng
        )
    return row(question.name, question.unit, question.limit, judged, len(ours))


def row(name: str, unit: str, limit: float | None, judged: Any, pairs: int) -> dict[str, Any]:
    """What the JSON holds of one judged limit."""
    return {
        "name": name,
        "unit": unit,
        "limit": limit,
        "value": judged.measured.median,
        "interval": [judged.measured.low, judged.measured.high],
        "control": judged.control.median,
        "control_interval": [judged.control.low, judged.control.high],
        "pairs": pairs,
        "verdict": judged.verdict,
    }
