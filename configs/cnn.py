"""A small convolutional network on digits, top-k gradients with an error memory.

    jddl train --config=configs/cnn.py --workdir=runs/cnn

About a minute on two CPU cores; test accuracy at least 0.96.
"""

from jddl import default_config


def get_config():
    """Top-k 5 % with error feedback over 8 workers."""
    config = default_config()
    config.model = "small_cnn(channels=16)"
    config.runtime = "vmap"
    config.aggregator = "error_feedback(topk(ratio=0.05))"
    config.optimizer = "sgd(learning_rate=0.1, momentum=0.9)"
    config.steps = 300
    return config
