"""What is measured: one record for a collective, one for a program, and the sum while walking."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jddl.accounting._conventions import Exact, exact


@dataclass(frozen=True, eq=False)
class Operation:
    """One collective of a program; all bytes and rounds are those of ONE of its `calls`.

    Attributes:
      primitive: JAX's primitive ('psum') or XLA's opcode ('all-reduce').
      axes: named axes it runs over.
      group_size: ranks that it connects; the largest group where they differ.
      operand_bytes: bytes of its operands on one rank.
      dtype: of its first operand, as JAX or XLA spells it.
      sent, received: object[rank], exact bytes (int, or Fraction) over the flattened mesh.
      rounds: communication rounds.
      calls: how often it runs in one step.
      payload_bytes: operand bytes, or 0 inside an exchange.
      scope: the name stack it stands in.
    """

    primitive: str
    axes: tuple[str, ...]
    group_size: int
    operand_bytes: int
    dtype: str
    sent: np.ndarray
    received: np.ndarray
    rounds: int
    calls: int
    payload_bytes: int
    scope: str


@dataclass(frozen=True, eq=False)
class Measurement:
    """Traffic and work of one step. Byte numbers are exact, and ints where integral.

    Attributes:
      axes: the mesh, {name: size}; ranks are numbered with the first axis varying slowest.
      operations: its collectives, in program order; those within one rank are left out.
      notes: what was assumed (a branch that nothing known decides).
      flops: of dot products and convolutions, of one worker; None in compiled programs.
      marked_bytes: bytes marked as payload; None in compiled programs, which keep no marks.
    """

    axes: Mapping[str, int]
    operations: tuple[Operation, ...] = ()
    notes: tuple[str, ...] = ()
    flops: int | None = 0
    marked_bytes: int | None = 0

    @property
    def payload_bytes(self) -> int:
        """What one worker contributes: marked arrays and operands outside an exchange.

        Raises:
          ValueError: of a compiled program.
        """
        if self.marked_bytes is None:
            raise ValueError(
                "a compiled program keeps no payload marks: read payload_bytes off "
                "measure(step, ...)"
            )
        return self.marked_bytes + _own_payload(self.operations)

    @property
    def sent_vector(self) -> np.ndarray:
        """int64[rank] bytes sent, float64[rank] where one is not integral."""
        return self._vector("sent")

    @property
    def received_vector(self) -> np.ndarray:
        """int64[rank] bytes received, float64[rank] where one is not integral."""
        return self._vector("received")

    @property
    def sent_bytes(self) -> int | float:
        """Bytes sent by the busiest worker."""
        return busiest(self.operations, "sent")

    @property
    def received_bytes(self) -> int | float:
        """Bytes received by the busiest worker."""
        return busiest(self.operations, "received")

    @property
    def rounds(self) -> int:
        """Communication rounds, one operation after the other."""
        return sum(o.rounds * o.calls for o in self.operations)

    @property
    def calls(self) -> int:
        """How many collectives run."""
        return sum(o.calls for o in self.operations)

    @property
    def by_operation(self) -> list[dict[str, Any]]:
        """A row for each primitive and axes. Busiest workers may differ from row to row."""
        members: dict[tuple[str, tuple[str, ...]], list[Operation]] = {}
        for operation in self.operations:
            members.setdefault((operation.primitive, operation.axes), []).append(operation)
        return [
            {
                "operation": primitive,
                "axes": axes,
                "calls": sum(o.calls for o in group),
                "rounds": sum(o.rounds * o.calls for o in group),
                "payload_bytes": _own_payload(group),
                "sent_bytes": busiest(group, "sent"),
                "received_bytes": busiest(group, "received"),
            }
            for (primitive, axes), group in members.items()
        ]

    def _vector(self, which: str) -> np.ndarray:
        if not self.operations:
            return np.zeros(math.prod(self.axes.values()), np.int64)
        plain = [_plain(x) for x in total(self.operations, which)]
        return np.array(plain, np.int64 if all(isinstance(x, int) for x in plain) else np.float64)


@dataclass
class Tally:
    """What a part of a program adds up to while it is walked."""

    operations: list[Operation] = field(default_factory=list)
    flops: int = 0
    marked: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: Tally, times: int = 1) -> None:
        """Add a part that runs `times` times."""
        if times == 1:
            self.operations += other.operations
        elif times:
            self.operations += [replace(o, calls=o.calls * times) for o in other.operations]
        self.flops += other.flops * times
        self.marked += other.marked * times
        self.notes += [note for note in other.notes if note not in self.notes]

    @property
    def communicates(self) -> bool:
        return bool(self.operations or self.marked)

    @property
    def price(self) -> tuple[int | float, int, int, int]:
        """By which branches are compared: bytes first, then payload, rounds and FLOPs."""
        rounds = sum(o.rounds * o.calls for o in self.operations)
        payload = self.marked + _own_payload(self.operations)
        return busiest(self.operations, "sent"), payload, rounds, self.flops


def dearest(branches: list[Tally], where: str) -> Tally:
    """The branch of the highest price, with a note where the choice matters."""
    chosen = max(branches, key=lambda branch: branch.price)
    if all(branch.price == chosen.price for branch in branches):
        return chosen
    note = f"undecided branch in {where or 'the step'}: the dearest of {len(branches)} is counted"
    return replace(chosen, notes=[*chosen.notes, note])


def total(operations: Iterable[Operation], which: str) -> np.ndarray:
    """object[rank]: exact bytes 'sent' or 'received' by all calls."""
    vectors = [getattr(o, which) * o.calls for o in operations]
    return sum(vectors[1:], vectors[0]) if vectors else np.zeros(0, object)


def busiest(operations: Iterable[Operation], which: str) -> int | float:
    """The largest entry of `total`, 0 without operations."""
    return _plain(max(total(operations, which), default=0))


def _own_payload(operations: Iterable[Operation]) -> int:
    return sum(o.payload_bytes * o.calls for o in operations)


def _plain(value: Exact) -> int | float:
    value = exact(value)
    return value if isinstance(value, int) else float(value)
