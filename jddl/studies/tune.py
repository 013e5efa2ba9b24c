"""Each variant at its own best: a grid per variant, picked on the validation split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from jddl.studies._grid import Grid, as_text, changed_to, edge_warning
from jddl.studies.compare import Cell, label_of, sweep


class Tuned(NamedTuple):
    """A variant at its best.

    cell: the runs at the chosen point; chosen: {place: value as text}; warning: one line where the
    choice is at an edge of its grid, else ''; points: every point tried, {place: value} with the
    mean validation values or the 'reason' why there are none.
    """

    cell: Cell
    chosen: dict[str, str]
    warning: str
    points: list[dict[str, Any]]


def tune(
    config: ConfigDict,
    changes: Sequence[dict[str, str]],
    grids: Sequence[Grid],
    seeds: list[int],
    workdir: str | Path,
    allow_import: tuple[str, ...] = (),
    progress: Callable[[str], Any] | None = None,
) -> list[Tuned]:
    """Train every variant at every point of the grids' product; return each variant at its best.

    The test split is not looked at: `pick` sees validation values only. All runs stay in workdir,
    and those that are there are not trained again.

    Raises:
      ValueError: a wrong place or value, before anything is trained.
    """
    points = list(itertools.product(*(grid.values for grid in grids)))
    plans = [changed_to(config, change, grids, point) for change in changes for point in points]
    cells = sweep(config, plans, seeds, workdir, allow_import, progress)
    found = []
    for index, change in enumerate(changes):
        label = label_of(change, allow_import)
        group = cells[index * len(points) : (index + 1) * len(points)]
        scores = [validation([run.summary for run in cell.runs]) for cell in group]
        tried: list[dict[str, Any]] = [
            {**_named(grids, point), **(score or {"reason": cell.reason})}
            for point, score, cell in zip(points, scores, group, strict=True)
        ]
        best = pick(scores)
        if best is None:
            reason = f"no point of the grid could be trained; the first: {group[0].reason}"
            found.append(Tuned(Cell(label, (), reason), {}, "", tried))
            continue
        cell, warning = group[best]._replace(label=label), edge_warning(label, grids, points[best])
        found.append(Tuned(cell, _named(grids, points[best]), warning, tried))
    return found


def validation(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over seeds of the validation values alone: all that picking may see."""
    names = [
        name
        for name in ("validation_accuracy", "validation_loss")
        if summaries and all(name in s for s in summaries)
    ]
    return {name: sum(s[name] for s in summaries) / len(summaries) for name in names}


def pick(points: Sequence[Mapping[str, float]]) -> int | None:
    """Index of the best point: the highest accuracy, or the lowest loss where there is none.

    Equal accuracies (a small split has few values) are told apart by the loss, then by order.

    Args:
      points: for each point what `validation` returns; {} where it could not be trained.
    """
    by_accuracy = all("validation_accuracy" in point for point in points if point)

    def score(point: Mapping[str, float]) -> tuple[float, float]:
        loss = point.get("validation_loss", math.inf)
        loss = loss if math.isfinite(loss) else math.inf
        return (-point["validation_accuracy"] if by_accuracy else loss, loss)

    able = [i for i, point in enumerate(points) if point and math.isfinite(score(point)[0])]
    return min(able, key=lambda i: score(points[i]), default=None)


def _named(grids: Sequence[Grid], point: Sequence[Any]) -> dict[str, Any]:
    return {grid.place: as_text(value) for grid, value in zip(grids, point, strict=True)}
