"""Rings: the rounds that several algorithms share."""

from __future__ import annotations

from jddl.collectives._schedule import Message, Round


def reduce_scatter_rounds(n: int) -> tuple[Round, ...]:
    """n-1 rounds; rank r ends with the finished sum of chunk (r + 1) mod n."""
    return tuple(
        (tuple(Message(r, (r + 1) % n, ((r - t) % n,), "add") for r in range(n)),)
        for t in range(n - 1)
    )


def all_gather_rounds(n: int) -> tuple[Round, ...]:
    """n-1 rounds that pass the finished chunks on."""
    return tuple(
        (tuple(Message(r, (r + 1) % n, ((r + 1 - t) % n,), "copy") for r in range(n)),)
        for t in range(n - 1)
    )
