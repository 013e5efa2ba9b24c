"""Proof of a schedule by symbolic replay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jddl.collectives._schedule import Lane, Message, Schedule

State = list[list[Counter[int]]]  # state[rank][chunk] -> how often each rank's part is in it


def prove(schedule: Schedule, ports: int | None = None) -> None:
    """Replay the schedule on symbols: each rank must end with each contribution exactly once.

    Args:
      schedule: any all-reduce.
      ports: how many messages a rank may send (and receive) in one round; None: any number.

    Raises:
      ValueError: a malformed lane, a port limit broken, or the first wrong (rank, chunk).
    """
    n, chunks = schedule.n, schedule.chunks
    state: State = [[Counter({rank: 1}) for _ in range(chunks)] for rank in range(n)]
    for number, lanes in enumerate(schedule.rounds):
        for lane in lanes:
            _check_lane(schedule, number, lane)
        _check_ports(number, lanes, ports)
        before = [list(row) for row in state]
        written: dict[tuple[int, int], str] = {}
        for message in (m for lane in lanes for m in lane):
            _apply(message, before, state, written, number)
    wanted = Counter({rank: 1 for rank in range(n)})
    for rank in range(n):
        for chunk in range(chunks):
            if state[rank][chunk] != wanted:
                raise ValueError(
                    f"{schedule.name}: rank {rank} ends with chunk {chunk} = "
                    f"{dict(sorted(state[rank][chunk].items()))} (rank: times) instead of each once"
                )


def _apply(
    message: Message, before: State, state: State, written: dict[tuple[int, int], str], number: int
) -> None:
    for chunk in message.chunks:
        place = (message.dst, chunk)
        if "copy" in (written.get(place), message.op if place in written else None):
            raise ValueError(
                f"round {number}: rank {message.dst} chunk {chunk} is copied to and written again"
            )
        written[place] = message.op
        incoming = before[message.src][chunk]
        old = state[message.dst][chunk] if message.op == "add" else Counter()
        state[message.dst][chunk] = old + incoming


def _check_lane(schedule: Schedule, number: int, lane: Lane) -> None:
    where = f"{schedule.name}, round {number}"
    for end in ("src", "dst"):
        ranks = [getattr(m, end) for m in lane]
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"{where}: a rank stands twice as {end} in one lane")
        if any(not 0 <= r < schedule.n for r in ranks):
            raise ValueError(f"{where}: a rank outside 0..{schedule.n - 1}")
    if len({len(m.chunks) for m in lane}) > 1:
        raise ValueError(f"{where}: messages of one lane differ in length")
    if len({m.op for m in lane}) > 1:
        raise ValueError(f"{where}: a lane both adds and copies")
    for message in lane:
        if len(set(message.chunks)) != len(message.chunks) or not message.chunks:
            raise ValueError(f"{where}: a message without chunks, or with one twice")
        if any(not 0 <= c < schedule.chunks for c in message.chunks):
            raise ValueError(f"{where}: a chunk outside 0..{schedule.chunks - 1}")


def _check_ports(number: int, lanes: tuple[Lane, ...], ports: int | None) -> None:
    for end in ("src", "dst"):
        count = Counter(getattr(m, end) for lane in lanes for m in lane)
        if ports is not None and count and max(count.values()) > ports:
            raise ValueError(f"round {number}: a rank needs {max(count.values())} ports as {end}")
