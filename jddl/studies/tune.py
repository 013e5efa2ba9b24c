"""Each variant at its own best: a grid per variant, picked on the validation split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from jddl import spec
from jddl.experiment import DEFAULTS, SPEC_FIELDS, complete
from jddl.studies.compare import Cell, sweep


class Grid(NamedTuple):
    """One `--tune`: a field, the argument of its spec ('' for a plain field), values as text."""

    field: str
    argument: str
    values: tuple[str, ...]


class Tuned(NamedTuple):
    """The chosen cell of a variant, what was chosen ('learning_rate=0.1'), and a warning or ''."""

    cell: Cell
    chosen: str
    warning: str


def parse_grid(text: str) -> Grid:
    """'optimizer.learning_rate:0.03,0.1' or 'batch_size:60,240'.

    Raises:
      ValueError: in one line.
    """
    place, colon, values = text.partition(":")
    field, dot, argument = place.strip().partition(".")
    listed = tuple(v.strip() for v in values.split(","))
    if not colon or not all(listed):
        raise ValueError(f"tune {text!r}: write it as 'optimizer.learning_rate:0.03,0.1,0.3'")
    if field not in DEFAULTS:
        complete({field: ""})  # raises with the alternatives
    if bool(dot) != (field in SPEC_FIELDS):
        wanted = f"{field}.ARGUMENT:..." if field in SPEC_FIELDS else f"{field}:..."
        raise ValueError(f"tune {text!r}: write it as '{wanted}'")
    return Grid(field, argument, listed)


def tune(
    config: ConfigDict,
    changes: Sequence[dict[str, str]],
    grids: Sequence[Grid],
    seeds: list[int],
    workdir: str | Path,
    allow_import: tuple[str, ...] = (),
    progress: Callable[[str], Any] | None = None,
) -> list[Tuned]:
    """Train every variant at every point of the grid; return each variant at its best.

    The test split is not looked at: `pick` sees validation values only. All runs stay in workdir.
    """
    points = list(itertools.product(*(grid.values for grid in grids)))
    plans = []
    for change in changes:
        for point in points:
            tried = dict(change)
            for grid, value in zip(grids, point, strict=True):
                tried[grid.field] = _with(
                    tried.get(grid.field, str(config[grid.field])), grid, value
                )
            plans.append(tried)
    cells = sweep(config, plans, seeds, workdir, allow_import, progress)
    plain = sweep_labels(changes)
    found = []
    for index, label in enumerate(plain):
        group = cells[index * len(points) : (index + 1) * len(points)]
        best = pick([[run.summary for run in cell.runs] for cell in group])
        if best is None:
            found.append(Tuned(Cell(label, (), group[0].reason), "", ""))
            continue
        chosen = list(zip(grids, points[best], strict=True))
        names = [f"{grid.argument or grid.field}={value}" for grid, value in chosen]
        edges = [
            name
            for name, (grid, value) in zip(names, chosen, strict=True)
            if len(grid.values) > 1 and value in (grid.values[0], grid.values[-1])
        ]
        warning = f"{label}: best at the edge of its grid, {', '.join(edges)}" if edges else ""
        found.append(Tuned(group[best]._replace(label=label), ", ".join(names), warning))
    return found


def sweep_labels(changes: Sequence[dict[str, str]]) -> list[str]:
    """How the variants are called, without what was tuned."""
    return [", ".join(f"{k}={v}" for k, v in change.items()) or "run" for change in changes]


def pick(summaries: Sequence[Sequence[dict[str, Any]]]) -> int | None:
    """Index of the best point: highest mean validation accuracy, or lowest validation loss.

    Args:
      summaries: for each point the summaries over seeds; empty where it could not be trained.
    """
    name = "validation_loss"
    if any("validation_accuracy" in s for point in summaries for s in point):
        name = "validation_accuracy"
    sign = 1 if name == "validation_loss" else -1
    scores = [
        sign * sum(s[name] for s in point) / len(point) if point else math.inf
        for point in summaries
    ]
    scores = [score if math.isfinite(score) else math.inf for score in scores]
    best = min(range(len(scores)), key=scores.__getitem__)
    return None if math.isinf(scores[best]) else best


def _with(text: str, grid: Grid, value: str) -> str:
    """The field's text with the tuned argument set."""
    if not grid.argument:
        return value
    call = spec.parse_call(text)
    kept = tuple((k, v) for k, v in call.keywords if k != grid.argument)
    return spec.render(
        spec.Spec(call.name, call.positional, (*kept, (grid.argument, spec.parse(value))))
    )
