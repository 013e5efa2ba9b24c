"""A cluster of equal machines and links, described by numbers."""

from __future__ import annotations

from jddl.records import Cluster

EXAMPLES = ("cluster", "cluster(latency=5e-05, bandwidth=1.25e9)")


def cluster(
    latency: float = 1e-5, bandwidth: float = 1e10, n: int = 8, flops: float = 1e13
) -> Cluster:
    """n equal workers, each with one full-duplex link to a switch.

    Args:
      latency: seconds a message.
      bandwidth: bytes per second and direction.
      n: number of workers.
      flops: floating-point operations per second of a worker.

    Raises:
      ValueError: a number that is not positive.
    """
    if min(bandwidth, flops, n) <= 0 or latency < 0:
        raise ValueError("bandwidth, flops and n are positive, latency is not negative")
    return Cluster(f"{n} workers, {latency:g} s, {bandwidth:g} B/s", n, latency, bandwidth, flops)
