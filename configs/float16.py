"""A small network in float16 with a dynamic loss scale, on batches that divide over nothing.

    jddl train --config=configs/float16.py --workdir=runs/float16

About 15 seconds on two CPU cores; test accuracy at least 0.95.
"""

from jddl import default_config


def get_config():
    """Micro-batches of unequal size: 250 examples over 8 workers and 4 micro-batches, clipped."""
    config = default_config()
    config.model = "mlp(hidden=64)"
    config.runtime = "vmap"
    config.precision = "float16"
    config.batch_size = 250
    config.uneven_batch = "pad"
    config.accumulate = 4
    config.clip_norm = 1.0
    config.steps = 200
    return config
