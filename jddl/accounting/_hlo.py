"""Measure a compiled program: the same record, read off HLO text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from jddl.accounting._record import Measurement, Operation, grouped

KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "collective_permute",
}
UNKNOWN = ("collective-broadcast", "ragged-all-to-all")
WIDTHS = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4,
    "f32": 4, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16, "s4": 1, "u4": 1,
}  # fmt: skip
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")


def measure_hlo(program: Any, axes: Mapping[str, int] | None = None) -> Measurement:
    """Bytes and rounds of a compiled program.

    Asynchronous pairs count at `-start`. Native collectives count as rings, so bytes equal
    `measure`'s; rounds and calls may be fewer, since XLA merges collectives.

    Args:
      program: `jit(f).lower(...).compile()`, or its text.
      axes: the mesh, for the record only.

    Raises:
      ValueError: a form of the text that is not understood, a loop of unknown length around a
        collective.
    """
    text = program if isinstance(program, str) else program.as_text()
    header = text.split("\n", 1)[0]
    parts = [int(x) for x in re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)]
    ranks = math.prod(parts)
    computations, entry = _computations(text)
    operations = tuple(_walk(entry, computations, ranks, 1))
    return Measurement(axes or {"device": ranks}, operations)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    found: dict[str, list[str]] = {}
    entry = current = ""
    for line in text.splitlines():
        opened = re.match(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$", line)
        if opened and " = " not in line.split("{")[0].split("(")[0]:
            current = opened[2]
            found[current] = []
            entry = current if opened[1] else entry
        elif line.startswith("}"):
            current = ""
        elif current:
            found[current].append(line)
    if not entry:
        raise ValueError("this is no HLO text: it has no ENTRY computation")
    return found, entry


def _walk(name: str, computations: dict[str, list[str]], ranks: int, times: int) -> list[Operation]:
    found: list[Operation] = []
    shapes: dict[str, str] = {}
    for line in computations[name]:
        matched = _INSTRUCTION.match(line)
        if not matched:
            continue
        result, shape, opcode, rest = matched.groups()
        shapes[result] = shape
        base = opcode.removesuffix("-start")
        if base in UNKNOWN:
            raise ValueError(f"the HLO operation {opcode!r} is not understood")
        if base in KINDS:
            found.append(_operation(base, rest, shapes, ranks, times))
        elif opcode == "while":
            found += _loop(line, computations, ranks, times)
        elif opcode == "conditional":
            branches = [_walk(b, computations, ranks, times) for b in _called(line, computations)]
            found += max(branches, key=lambda ops: Measurement({}, tuple(ops)).sent_bytes)
        else:
            for called in _called(line, computations):
                if "to_apply" not in line or opcode == "call":
                    found += _walk(called, computations, ranks, times)
    return found


def _loop(line: str, computations: dict[str, list[str]], ranks: int, times: int) -> list[Operation]:
    body = re.search(r"body=%?([\w.\-]+)", line)
    assert body is not None
    inner = _walk(body[1], computations, ranks, times)
    trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
    if inner and not trips:
        raise ValueError("a collective stands in an HLO loop without known_trip_count")
    count = int(trips[1]) if trips else 1
    return [Operation(**{**vars(o), "calls": o.calls * count}) for o in inner]


def _called(line: str, computations: dict[str, list[str]]) -> list[str]:
    lists = re.findall(r"(?:calls|to_apply|branch_computations|true_computation|false_computation)"
                       r"=(\{[^}]*\}|%?[\w.\-]+)", line)  # fmt: skip
    names = [n for group in lists for n in re.findall(r"[\w.\-]+", group)]
    return [n for n in names if n in computations]


def _operation(base: str, rest: str, shapes: dict[str, str], ranks: int, times: int) -> Operation:
    arguments = rest[: _closing(rest)]
    inline = _SHAPE.findall(arguments)
    names = [] if inline else re.findall(r"%?([\w.\-]+)", arguments)
    described = inline or [s for n in names for s in _SHAPE.findall(shapes[n])]
    nbytes = sum(
        _width(t) * math.prod(int(d) for d in dims.split(",") if d) for t, dims in described
    )
    if base == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", rest)
        if not pairs:
            raise ValueError(f"a collective-permute without source_target_pairs: {rest[:80]}")
        moves = [(int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[0])]
        moves = [(a, b) for a, b in moves if a != b]
        sent = tuple(Fraction(nbytes * sum(a == r for a, _ in moves)) for r in range(ranks))
        received = tuple(Fraction(nbytes * sum(b == r for _, b in moves)) for r in range(ranks))
        return Operation(base, (), sent, received, int(bool(moves)), times, nbytes)
    n = len(_groups(rest, ranks)[0])
    each, rounds = grouped(KINDS[base], nbytes, n)
    return Operation(base, (), (each,) * ranks, (each,) * ranks, rounds, times, nbytes)


def _closing(rest: str) -> int:
    depth = 1
    for index, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index
    raise ValueError(f"an HLO instruction without its closing bracket: {rest[:80]}")


def _width(dtype: str) -> int:
    if dtype.startswith("f8"):
        return 1
    if dtype not in WIDTHS:
        raise ValueError(f"the HLO type {dtype!r} is not understood")
    return WIDTHS[dtype]


def _groups(rest: str, ranks: int) -> np.ndarray:
    """The replica groups [groups, members], of the three forms that XLA prints."""
    listed = re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", rest)
    if listed:
        groups = [
            [int(x) for x in g.split(",") if x] for g in re.findall(r"\{([\d,]*)\}", listed[1])
        ]
        return np.array(groups or [list(range(ranks))])
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest)
    if iota:
        shape, dims = _ints(iota[1]), _ints(iota[2])
        ids = np.arange(math.prod(dims)).reshape(dims)
        return (ids.transpose(_ints(iota[3])) if iota[3] else ids).reshape(shape)
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", rest)
    if mesh:
        sizes = {k: int(v) for k, v in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        over = re.findall(r"'([^']+)'", mesh[2])
        if not sizes or any(a not in sizes for a in over):
            raise ValueError(f"replica_groups of this form are not understood: {mesh[0]}")
        ids = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
        kept = [i for i, a in enumerate(sizes) if a not in over]
        moved = ids.transpose(kept + [list(sizes).index(a) for a in over])
        return moved.reshape(-1, math.prod(sizes[a] for a in over))
    raise ValueError(f"replica_groups of this form are not understood: {rest[:120]}")


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(","))
