"""Ethernet by its nominal rate."""

from __future__ import annotations

from jddl.records import Cluster

EXAMPLES = ("ethernet", "ethernet(gigabits=100.0)")


def ethernet(gigabits: float = 10.0, n: int = 8, flops: float = 1e13) -> Cluster:
    """n workers on one Ethernet switch: `gigabits` Gbit/s each way, 50 microseconds a message.

    The latency is the order of a TCP message between two hosts, an assumption, not a measurement;
    the bandwidth is the nominal rate.

    Args:
      gigabits: nominal rate in Gbit/s.
      n: number of workers.
      flops: floating-point operations per second of a worker.

    Raises:
      ValueError: a number that is not positive.
    """
    if min(gigabits, flops, n) <= 0:
        raise ValueError("gigabits, flops and n are positive")
    return Cluster(
        f"{n} workers on {gigabits:g} Gbit/s Ethernet", n, 5e-5, gigabits * 1.25e8, flops
    )
