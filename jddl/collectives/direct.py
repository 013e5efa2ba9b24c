"""Direct all-reduce: everybody sends to everybody."""

from __future__ import annotations

from jddl.collectives._schedule import Lane, Message, Round, Schedule

EXAMPLES = ("direct",)


def direct(n: int) -> Schedule:
    """Two-shot direct all-reduce: chunk c is summed at rank c, then sent back to all.

    Two rounds of n-1 lanes each: in the first every rank sends to each other rank the chunk which
    that rank owns, in the second it sends its finished chunk to all. 2 (n-1)/n M bytes a rank like
    the ring; two rounds where a rank may use n-1 ports at once, 2 (n-1) with one port (which is
    how `num_rounds` and the modelled time count). Only the owner adds, so replicas are
    bit-identical.

    Args:
      n: number of ranks.
    """

    def lanes(op: str) -> Round:
        built: list[Lane] = []
        for shift in range(1, n):
            pairs = [(r, (r + shift) % n) for r in range(n)]
            built.append(
                tuple(Message(s, d, (d,), "add") for s, d in pairs)
                if op == "add"
                else tuple(Message(s, d, (s,), "copy") for s, d in pairs)
            )
        return tuple(built)

    return Schedule("direct", n, n, (lanes("add"), lanes("copy")) if n > 1 else ())
