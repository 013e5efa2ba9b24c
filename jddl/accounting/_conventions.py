"""How many bytes a collective moves: one table for traced and for compiled programs.

Native collectives count as the ring algorithm that they are equivalent to. With n ranks in a
group and B operand bytes on each:

| kind           | sent by each rank | rounds   |
|----------------|-------------------|----------|
| all_reduce     | 2 (n-1)/n B       | 2 (n-1)  |
| reduce_scatter | (n-1)/n B         | n-1      |
| all_gather     | (n-1) B           | n-1      |
| all_to_all     | (n-1)/n B         | n-1      |
| broadcast      | B, the last rank of the chain nothing | n-1 |
| permute        | B by each source of another rank      | 1   |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

Exact: TypeAlias = int | Fraction
Group: TypeAlias = Sequence[int]  # ranks of the flattened mesh, in the order of the group
Traffic: TypeAlias = tuple[np.ndarray, np.ndarray, int]  # sent and received [rank], rounds


def grouped(kind: str, groups: Iterable[Group], nbytes: int, num_ranks: int) -> Traffic:
    """Traffic of one native collective.

    Args:
      kind: a kind of the table above, but not 'permute'.
      groups: disjoint groups of ranks; of a broadcast the first member is the source.
      nbytes: operand bytes of one rank.
      num_ranks: size of the flattened mesh.

    Returns:
      sent, received: object[num_ranks], exact bytes (int, or Fraction); rounds of the largest
      group. All zero where every group has one member.
    """
    sent, received = _zeros(num_ranks), _zeros(num_ranks)
    rounds = 0
    for group in groups:
        n = len(group)
        if n == 1:
            continue
        rounds = max(rounds, 2 * (n - 1) if kind == "all_reduce" else n - 1)
        if kind == "broadcast":
            sent[list(group[:-1])] = nbytes
            received[list(group[1:])] = nbytes
        else:
            sent[list(group)] = received[list(group)] = _by_each(kind, n, nbytes)
    return sent, received, rounds


def permuted(pairs: Iterable[tuple[int, int]], nbytes: int, num_ranks: int) -> Traffic:
    """Traffic of one permutation: (source, destination) ranks; a rank's move to itself is free."""
    sent, received = _zeros(num_ranks), _zeros(num_ranks)
    moves = [(source, target) for source, target in pairs if source != target]
    for source, target in moves:
        sent[source] += nbytes
        received[target] += nbytes
    return sent, received, 1 if moves else 0


def exact(value: Exact) -> Exact:
    """An int where the value is integral."""
    return int(value) if value == int(value) else value


def _by_each(kind: str, n: int, nbytes: int) -> Exact:
    match kind:
        case "all_reduce":
            return exact(Fraction(2 * (n - 1) * nbytes, n))
        case "reduce_scatter" | "all_to_all":
            return exact(Fraction((n - 1) * nbytes, n))
        case "all_gather":
            return (n - 1) * nbytes
    raise AssertionError(f"no convention for {kind!r}")


def _zeros(num_ranks: int) -> np.ndarray:
    return np.array([0] * num_ranks, dtype=object)
