"""Grids to tune over: how they are written, and how a point is put into a config."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from jddl import catalog, spec
from jddl.experiment import DEFAULTS, SPEC_FIELDS, complete

REFUSED = {
    "seed": "seeds are repetitions, not a choice: say --seeds",
    "task": "another task has another validation split, whose values do not compare",
}


class Grid(NamedTuple):
    """One place to tune: a field, the path to an argument of its spec (() for a plain field)."""

    field: str
    path: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def place(self) -> str:
        """As it was written: 'optimizer.learning_rate'."""
        return ".".join((self.field, *self.path))


def parse_grids(texts: Sequence[str]) -> list[Grid]:
    """The grids of several --tune flags, of which each may hold several, separated by ';'."""
    grids = [parse_grid(part) for text in texts for part in spec.split_sweep(text)]
    places = [grid.place for grid in grids]
    for place in places:
        if places.count(place) > 1:
            raise ValueError(f"tune: {place} is tuned twice")
    return grids


def parse_grid(text: str) -> Grid:
    """'optimizer.learning_rate:0.03,0.1', 'aggregator.compressor.ratio:0.1,0.2', 'batch_size:60'.

    Values are separated by commas outside brackets and quotes.

    Raises:
      ValueError: in one line.
    """
    place, colon, listed = text.partition(":")
    field, *path = (word.strip() for word in place.split("."))
    example = f"tune {text!r}: write it as 'optimizer.learning_rate:0.03,0.1,0.3'"
    if not colon or not listed.strip() or not all((field, *path)):
        raise ValueError(example)
    if field not in DEFAULTS:
        complete({field: ""})  # raises with the alternatives
    if field in REFUSED:
        raise ValueError(f"tune {text!r}: {REFUSED[field]}")
    if bool(path) != (field in SPEC_FIELDS):
        wanted = f"{field}.ARGUMENT:..." if field in SPEC_FIELDS else f"{field}:..."
        raise ValueError(f"tune {text!r}: write it as '{wanted}'")
    try:
        values = spec.parse(f"[{listed}]")
    except ValueError as error:
        raise ValueError(f"{example} ({error})") from None
    if not path:
        values = [_plain(text, field, value) for value in values]
    if any(a == b for a, b in itertools.combinations(values, 2)):
        raise ValueError(f"tune {text!r}: a value stands twice")
    return Grid(field, tuple(path), tuple(values))


def edge_warning(label: str, grids: Sequence[Grid], point: Sequence[Any]) -> str:
    """One line where a chosen number is the smallest or largest of its grid, else ''."""
    edges = []
    for grid, value in zip(grids, point, strict=True):
        numbers = [v for v in grid.values if type(v) in (int, float)]
        if len(numbers) == len(grid.values) > 1 and value in (min(numbers), max(numbers)):
            edges.append(f"{grid.place}={value} of {min(numbers)} to {max(numbers)}")
    if not edges:
        return ""
    return f"{label}: best at the edge of its grid ({'; '.join(edges)}): widen it"


def with_argument(call: spec.Spec, path: Sequence[str], value: Any, shelf: str | None) -> spec.Spec:
    """The call with the argument at a path set: ('compressor', 'ratio') goes into the nested call.

    Args:
      shelf: of the call, which tells the name of an argument that stands without one.
    """
    name, *rest = path
    known = {}
    if shelf is not None and not call.dotted:
        known = {p.name: p for p in catalog.describe(shelf, call.name).parameters}
    first, keywords = call.positional, dict(call.keywords)
    if first and name == next(iter(known), None):
        keywords, first = {name: first[0], **keywords}, ()
    if rest:
        inner = keywords.get(name)
        if not isinstance(inner, spec.Spec):
            raise ValueError(f"tune: {call} states no component {name!r} with {'.'.join(rest)!r}")
        value = with_argument(inner, rest, value, known[name].shelf if name in known else None)
    return spec.Spec(call.name, first, tuple({**keywords, name: value}.items()))


def changed_to(
    config: ConfigDict, change: Mapping[str, str], grids: Sequence[Grid], point: Sequence[Any]
) -> dict[str, str]:
    """A variant's changes with the point's values put in."""
    tried = dict(change)
    for grid, value in zip(grids, point, strict=True):
        if not grid.path:
            if grid.field in change:
                raise ValueError(f"tune: {grid.field} is swept already: it cannot be tuned too")
            tried[grid.field] = as_text(value)
            continue
        call = spec.parse_call(tried.get(grid.field, config[grid.field]))
        edited = with_argument(call, grid.path, value, SPEC_FIELDS[grid.field])
        tried[grid.field] = spec.render(edited)
    return tried


def _plain(text: str, field: str, value: Any) -> Any:
    """A value of a plain field, of that field's type."""
    wanted = type(DEFAULTS[field])
    if wanted is str and isinstance(value, spec.Spec) and value == spec.Spec(value.name):
        return value.name  # a word without quotes
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f"tune {text!r}: {field} is {wanted.__name__}, not {spec.render(value)}")
    return value


def as_text(value: Any) -> str:
    """A value as a table shows it."""
    return value if isinstance(value, str) else spec.render(value).removesuffix("()")
