"""The rule by which a limit holds. Pure: samples in, verdict out.

A limit on a ratio holds when the median ratio is at most the limit times the upper edge of the
A/A ratio's 95 % interval, and the ratio's own 95 % interval is no wider than 0.10. The control's
interval must be as narrow: a noisy one has a high upper edge, which would pass anything. An amount
(microseconds, seconds) holds when its median is at most the limit, with both intervals no wider
than the limit; the control is shown and loosens nothing. What is too wide is 'not judged', which is
no pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jddl.studies.bench_timing import Interval, interval

WIDTH = 0.10  # of a ratio's interval


class Judged(NamedTuple):
    measured: Interval
    control: Interval
    verdict: str  # 'holds' | 'FAILS' | 'not judged'


def judge_ratio(
    ratios: np.ndarray, control: np.ndarray, limit: float, rng: np.random.Generator
) -> Judged:
    """ratios: ours / reference of each pair; control: reference again / reference."""
    measured, again = interval(ratios, rng), interval(control, rng)
    return Judged(measured, again, _verdict(measured, again, limit * again.high, WIDTH))


def judge_amount(
    amounts: np.ndarray, control: np.ndarray, limit: float, rng: np.random.Generator
) -> Judged:
    """amounts: ours, or ours - reference; control: the same thing again - the same thing."""
    measured, again = interval(amounts, rng), interval(control, rng)
    return Judged(measured, again, _verdict(measured, again, limit, limit))


def _verdict(measured: Interval, control: Interval, bound: float, width: float) -> str:
    if not (measured.width <= width and control.width <= width):  # NaN is not judged either
        return "not judged"
    return "holds" if measured.median <= bound else "FAILS"
