"""A recurrent language model whose gradients travel in 8 bits with an error memory.

    jddl train --config=configs/lstm.py --workdir=runs/lstm

About a minute on two CPU cores; below 2.8 validation bits per byte.
"""

from jddl import default_config


def get_config():
    """4 workers, each with 16 windows of 64 bytes."""
    config = default_config()
    config.task = "python_source(length=64)"
    config.model = "lstm(width=128)"
    config.mesh = "data=4"
    config.runtime = "vmap"
    config.aggregator = "error_feedback(int8)"
    config.optimizer = "adam(learning_rate=0.005)"
    config.clip_norm = 1.0
    config.batch_size = 64
    config.steps = 300
    return config
