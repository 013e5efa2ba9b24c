"""What is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Operation:
    """One collective of the program.

    sent, received: bytes of each rank of the flattened mesh (exact fractions), for one call;
    calls: how often it runs in a step; rounds: of one call; payload: operand bytes of one call
    that were not marked elsewhere.
    """

    primitive: str
    axes: tuple[str, ...]
    sent: tuple[Fraction, ...]
    received: tuple[Fraction, ...]
    rounds: int
    calls: int
    payload: int


@dataclass(frozen=True)
class Measurement:
    """Traffic of one step.

    axes: the mesh; flops: of dot products and convolutions of one worker; marked: bytes marked as
    payload; notes: what was assumed (a branch that the step number does not decide).
    """

    axes: Mapping[str, int]
    operations: tuple[Operation, ...]
    flops: int = 0
    marked: int = 0
    notes: tuple[str, ...] = ()

    @property
    def payload_bytes(self) -> int:
        """What one worker contributes in a step."""
        return self.marked + sum(o.payload * o.calls for o in self.operations)

    @property
    def sent_vector(self) -> np.ndarray:
        """Bytes sent by each rank of the flattened mesh."""
        return self._vector("sent")

    @property
    def received_vector(self) -> np.ndarray:
        """Bytes received by each rank of the flattened mesh."""
        return self._vector("received")

    @property
    def sent_bytes(self) -> int | float:
        """Bytes sent by the busiest worker."""
        return _plain(max(self._totals("sent"), default=Fraction(0)))

    @property
    def received_bytes(self) -> int | float:
        """Bytes received by the busiest worker."""
        return _plain(max(self._totals("received"), default=Fraction(0)))

    @property
    def rounds(self) -> int:
        """Communication rounds with one port a worker; native collectives count as rings."""
        return sum(o.rounds * o.calls for o in self.operations)

    @property
    def calls(self) -> int:
        """How many collectives run in a step."""
        return sum(o.calls for o in self.operations)

    @property
    def by_operation(self) -> list[dict[str, Any]]:
        """Rows grouped by primitive and axes."""
        groups: dict[tuple[str, tuple[str, ...]], list[Operation]] = {}
        for operation in self.operations:
            groups.setdefault((operation.primitive, operation.axes), []).append(operation)
        rows = []
        for (primitive, axes), members in groups.items():
            part = Measurement(self.axes, tuple(members))
            rows.append({
                "operation": primitive, "axes": axes, "calls": part.calls, "rounds": part.rounds,
                "sent_bytes": part.sent_bytes, "received_bytes": part.received_bytes,
            })  # fmt: skip
        return rows

    def _totals(self, which: str) -> list[Fraction]:
        columns = [[x * o.calls for x in getattr(o, which)] for o in self.operations]
        return [sum(rank, Fraction(0)) for rank in zip(*columns, strict=True)]

    def _vector(self, which: str) -> np.ndarray:
        return np.array([float(x) for x in self._totals(which)])


def _plain(x: Fraction) -> int | float:
    return int(x) if x.denominator == 1 else float(x)


def grouped(kind: str, nbytes: int, n: int) -> tuple[Fraction, int]:
    """(bytes that each rank sends and receives, rounds) of a native collective as a ring.

    Args:
      kind: all_reduce, reduce_scatter, all_gather or all_to_all.
      nbytes: of the operand of one rank.
      n: size of the group.
    """
    share = Fraction(n - 1, n)
    match kind:
        case "all_reduce":
            return 2 * share * nbytes, 2 * (n - 1)
        case "reduce_scatter" | "all_to_all":
            return share * nbytes, n - 1
        case "all_gather":
            return Fraction((n - 1) * nbytes), n - 1
    raise ValueError(f"unknown kind of collective {kind!r}")
