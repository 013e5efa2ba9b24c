"""Ring all-reduce."""

from __future__ import annotations

from jddl.collectives._rings import all_gather_rounds, reduce_scatter_rounds
from jddl.collectives._schedule import Schedule

EXAMPLES = ("ring",)


def ring(n: int) -> Schedule:
    """Ring all-reduce: a reduce-scatter and an all-gather around one ring.

    The vector is cut in n chunks. In round t < n-1 rank r sends chunk (r - t) mod n to r+1, which
    adds it; n-1 further rounds pass the finished chunks on. Every rank adds each chunk in the same
    order, so replicas are bit-identical. Sent per rank: 2 (n-1)/n M bytes in 2 (n-1) rounds, the
    least possible number of bytes.

    Args:
      n: number of ranks.

    Reference: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", JPDC 2009.
    """
    return Schedule("ring", n, n, reduce_scatter_rounds(n) + all_gather_rounds(n))
