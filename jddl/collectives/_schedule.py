"""A collective as a value: what moves, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from jddl.collectives import _draw, _prove
from jddl.records import Cluster


class Message(NamedTuple):
    """`chunks` of the vector go from rank src to rank dst and are added there, or copied."""

    src: int
    dst: int
    chunks: tuple[int, ...]
    op: Literal["add", "copy"]


Lane: TypeAlias = tuple[Message, ...]  # a partial permutation: one `ppermute`
Round: TypeAlias = tuple[Lane, ...]  # all lanes read the state before the round


@dataclass(frozen=True)
class Schedule:
    """A collective written down: rounds of lanes of messages over `chunks` pieces of a vector.

    `primitive` names the XLA collective that computes the same result (the native form): it is
    then what runs, and the rounds only price it. What can be asked of a schedule is in
    `jddl.collectives`: prove, sent_bytes, received_bytes, time, draw.
    """

    name: str
    n: int
    chunks: int
    rounds: tuple[Round, ...]
    verb: str = "all_reduce"
    primitive: Callable[[Any, Any], Any] | None = None

    @property
    def messages(self) -> list[Message]:
        """All messages in the order of rounds and lanes."""
        return [m for lanes in self.rounds for lane in lanes for m in lane]

    @property
    def num_rounds(self) -> int:
        """Rounds with one port a rank: each lane is one `ppermute`, hence one round."""
        return sum(len(lanes) for lanes in self.rounds)

    def prove(self, ports: int | None = None) -> None:
        """Raise ValueError unless each rank ends with each contribution exactly once."""
        _prove.prove(self, ports)

    def sent_bytes(self, nbytes: int) -> float:
        """Bytes that the busiest rank sends for a vector of nbytes."""
        return max(_per_rank(self, nbytes, "src"))

    def received_bytes(self, nbytes: int) -> float:
        """Bytes that the busiest rank receives for a vector of nbytes."""
        return max(_per_rank(self, nbytes, "dst"))

    def time(self, nbytes: int, cluster: Cluster) -> float:
        """Modelled seconds with synchronous rounds: each lane costs latency + longest message."""
        longest = [max((len(m.chunks) for m in lane), default=0) for r in self.rounds for lane in r]
        return sum(
            cluster.latency + size * nbytes / self.chunks / cluster.bandwidth for size in longest
        )

    def draw(self, path: str) -> None:
        """Write the rank x round diagram as PNG or SVG."""
        _draw.draw(self, path)


def _per_rank(schedule: Schedule, nbytes: int, end: Literal["src", "dst"]) -> list[float]:
    totals = [0] * schedule.n
    for message in schedule.messages:
        if message.src != message.dst:
            totals[getattr(message, end)] += len(message.chunks)
    return [t * nbytes / schedule.chunks for t in totals]
