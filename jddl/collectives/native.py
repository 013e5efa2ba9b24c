"""XLA's own all-reduce."""

from __future__ import annotations

from jax import lax

from jddl.collectives._rings import all_gather_rounds, reduce_scatter_rounds
from jddl.collectives._schedule import Schedule

EXAMPLES = ("native",)


def native(n: int) -> Schedule:
    """XLA's own all-reduce (`lax.psum`); counted and priced as a ring.

    What the backend does inside is its own choice (a shared-memory copy on one host, NCCL on
    GPUs), so bytes and rounds are the ring-equivalent ones: 2 (n-1)/n M bytes, 2 (n-1) rounds.

    Args:
      n: number of ranks.
    """
    rounds = reduce_scatter_rounds(n) + all_gather_rounds(n)
    return Schedule("native", n, n, rounds, primitive=lax.psum)
