"""Sixteen equal blocks, recomputed in the backward pass: 8 workers, digits.

jddl train --config=experiments/recompute/config.py --workdir=runs/recompute
"""

from jddl import default_config


def get_config():
    """A deep perceptron, so that nearly all the work is in its blocks."""
    config = default_config()
    config.model = "mlp(hidden=64, layers=16)"
    config.remat = "full"
    config.steps = 10
    return config
