"""What a measured step costs on a described cluster."""

from __future__ import annotations

from typing import Any

from jddl.records import Cluster


def step_seconds(measured: Any, cluster: Cluster) -> float:
    """Modelled seconds of one step: FLOPs / rate + rounds x latency + sent bytes / bandwidth.

    Compute and communication do not overlap in this model; native collectives are priced as rings.

    Args:
      measured: a Measurement (flops and bytes of the busiest worker, rounds).
    """
    compute = measured.flops / cluster.flops
    return compute + measured.rounds * cluster.latency + measured.sent_bytes / cluster.bandwidth
