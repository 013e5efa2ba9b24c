"""A small residual network on digits, batch normalisation over both workers.

    jddl train --config=configs/resnet.py --workdir=runs/resnet

About 25 seconds on two CPU cores; test accuracy at least 0.98 (0.9917 on 2026-12-03).
"""

from jddl import default_config


def get_config():
    """Two stages of one block, 29 passes over the data, the learning rate falls like a cosine."""
    config = default_config()
    config.model = "resnet(stages=[1, 1], width=16)"
    config.mesh = "data=2"
    config.runtime = "vmap"
    config.batch_size = 120
    schedule = "cosine_decay_schedule(init_value=0.01, decay_steps=300)"
    config.optimizer = f"adamw(learning_rate={schedule}, weight_decay=0.2)"
    config.steps = 300
    return config
