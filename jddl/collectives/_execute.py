"""One executor for every schedule: rounds of `ppermute`s under a named axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jddl.collectives._permute import permute
from jddl.collectives._schedule import Lane, Schedule

Axis = str | tuple[str, ...]


def execute(schedule: Schedule, x: jax.Array, axis: Axis) -> jax.Array:
    """Run a schedule on one flat vector x[d] (any dtype, any d) of each rank along `axis`.

    The vector is padded with zeros to a multiple of the number of chunks. Lanes of a round read
    the state before it; adds into one chunk are combined in lane order.
    """
    if schedule.n == 1:
        return x
    if schedule.primitive is not None:
        return schedule.primitive(x, axis)  # type: ignore[no-any-return]
    length = -(-x.size // schedule.chunks)
    padded = jnp.pad(x, (0, length * schedule.chunks - x.size))
    state = padded.reshape(schedule.chunks, length)
    rank = lax.axis_index(axis)
    for lanes in schedule.rounds:
        received = [_send(lane, schedule, state, rank, axis) for lane in lanes]
        for lane, message in zip(lanes, received, strict=True):
            state = _receive(lane, schedule, state, message, rank)
    return state.reshape(-1)[: x.size]


def _chunks_of(lane: Lane, schedule: Schedule, end: str) -> np.ndarray:
    """table[rank] = the sorted chunks that rank sends (or receives) in this lane; 0.. for none."""
    table = np.tile(np.arange(len(lane[0].chunks)), (schedule.n, 1))
    for message in lane:
        table[getattr(message, end)] = sorted(message.chunks)
    return table


def _row(table: np.ndarray, rank: Any, chunks: int) -> Any:
    """table[rank], by arithmetic where the table is (rank + constant) mod chunks: no look-up."""
    shift = table[0] % chunks
    if np.array_equal(table, (np.arange(len(table))[:, None] + shift) % chunks):
        return lax.rem(rank + shift.astype(np.int32), np.int32(chunks))
    return jnp.asarray(table)[rank]


def _send(lane: Lane, schedule: Schedule, state: Any, rank: Any, axis: Axis) -> Any:
    pairs = [(m.src, m.dst) for m in lane]
    if len(lane[0].chunks) == schedule.chunks:
        return permute(state, axis, pairs)
    table = _row(_chunks_of(lane, schedule, "src"), rank, schedule.chunks)
    # A single chunk is indexed by a scalar: an index array makes XLA copy the whole buffer.
    chunk = state[table[0]] if table.shape[0] == 1 else state[table]
    return permute(chunk, axis, pairs)


def _receive(lane: Lane, schedule: Schedule, state: Any, message: Any, rank: Any) -> Any:
    whole = len(lane[0].chunks) == schedule.chunks
    table = _row(_chunks_of(lane, schedule, "dst"), rank, schedule.chunks)
    place: Any = slice(None) if whole else (table[0] if table.shape[0] == 1 else table)
    if lane[0].op == "add":  # a rank that is no destination receives zeros
        if whole:
            return state + message
        return state.at[place].add(message, unique_indices=True, indices_are_sorted=True)
    if len(lane) < schedule.n:
        is_destination = np.isin(np.arange(schedule.n), [m.dst for m in lane])
        old = state if whole else state[place]
        message = jnp.where(jnp.asarray(is_destination)[rank], message, old)
    if whole:
        return message
    return state.at[place].set(message, unique_indices=True, indices_are_sorted=True)
