"""Nearly all of digits in one batch: LAMB at a rate scaled by the root, with gradual warm-up.

    jddl train --config=configs/lamb.py --workdir=runs/lamb

A few seconds on two CPU cores; test accuracy at least 0.96.
"""

from jddl import default_config


def get_config():
    """A batch of 1,200 of the 1,257 images over 8 workers, 100 steps."""
    config = default_config()
    config.runtime = "vmap"
    config.batch_size = 1200
    rate = "cosine_decay_schedule(init_value=0.02, decay_steps=100)"
    scaled = f"scaled(base_batch=240, rate={rate}, rule='sqrt', warmup=20)"
    config.optimizer = f"lamb(learning_rate={scaled}, weight_decay=0.01)"
    return config
