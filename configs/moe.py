"""A language model with experts, balanced over the batch of all workers.

    jddl train --config=configs/moe.py --workdir=runs/moe

About a minute on two CPU cores; below 3.0 validation bits per byte, under a tenth of the choices
dropped.
"""

from jddl import default_config


def get_config():
    """4 workers; each token takes 2 of 4 experts, which have room for 1.25 times an even share."""
    config = default_config()
    config.task = "python_source(length=64)"
    config.model = (
        "moe_transformer(capacity_factor=1.25, heads=4, hidden=192, kv_heads=2, layers=2, width=96)"
    )
    config.mesh = "data=4"
    config.runtime = "vmap"
    config.optimizer = "adamw(learning_rate=0.003)"
    config.clip_norm = 1.0
    config.batch_size = 32
    config.steps = 200
    return config
