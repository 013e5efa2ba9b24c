"""Recursive doubling all-reduce."""

from __future__ import annotations

from jddl.collectives._schedule import Message, Round, Schedule

EXAMPLES = ("recursive_doubling",)


def recursive_doubling(n: int) -> Schedule:
    """Recursive doubling: partners at distance 1, 2, 4, ... exchange and add whole vectors.

    For n = 2^k: k rounds of M bytes a rank, the least latency, k M bytes. For other n the r = n -
    2^k surplus ranks first add their vector to a partner and receive the result at the end: two
    more rounds. Both partners compute a + b and b + a, which are bit-identical in IEEE arithmetic,
    so replicas agree.

    Args:
      n: number of ranks.

    Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    core = 1 << (n.bit_length() - 1)
    surplus = n - core
    fold: Round = (tuple(Message(core + i, i, (0,), "add") for i in range(surplus)),)
    unfold: Round = (tuple(Message(i, core + i, (0,), "copy") for i in range(surplus)),)
    exchange: tuple[Round, ...] = tuple(
        (tuple(Message(r, r ^ (1 << k), (0,), "add") for r in range(core)),)
        for k in range(core.bit_length() - 1)
    )
    rounds = ((fold, *exchange, unfold)) if surplus else exchange
    return Schedule("recursive_doubling", n, 1, rounds)
