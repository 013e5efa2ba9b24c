"""A small CNN on digits over 8 workers, momentum, gradients over recursive doubling.

jddl verify --config=experiments/large_batch/config.py
About a minute; every leaf is 'summation order' with float64 differences under 1e-14.
"""

from jddl import default_config


def get_config():
    """8 workers, global batch 240."""
    config = default_config()
    config.model = "small_cnn(channels=4)"
    config.all_reduce = "recursive_doubling"
    return config
