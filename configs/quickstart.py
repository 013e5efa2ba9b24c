"""A small network on scikit-learn's digits over 8 workers.

    jddl train --config=configs/quickstart.py --workdir=runs/quickstart_mean

About 10 seconds on two CPU cores; test accuracy at least 0.96.
"""

from jddl import default_config


def get_config():
    """SGD with momentum, global batch 240, 8 data-parallel workers."""
    config = default_config()
    config.task = "digits"
    config.model = "mlp(hidden=64)"
    config.mesh = "data=8"
    config.aggregator = "mean"
    config.optimizer = "sgd(learning_rate=0.1, momentum=0.9)"
    config.cluster = "ethernet(gigabits=10.0)"
    config.batch_size = 240
    config.steps = 300
    config.log_every = 10
    return config
