"""Linear regression, the smallest run: 8 workers on one device.

    jddl train --config=configs/least_squares.py --workdir=runs/least_squares

About 3 seconds on two CPU cores; test loss near 0.005, half the variance of the noise.
"""

from jddl import default_config


def get_config():
    """Plain SGD on a convex problem with a known optimum."""
    config = default_config()
    config.task = "least_squares(noise=0.1)"
    config.model = "linear"
    config.runtime = "vmap"
    config.optimizer = "sgd(learning_rate=0.3)"
    config.batch_size = 240
    config.steps = 100
    return config
