"""A small residual network on digits over 2 workers, batch normalisation over both.

jddl train --config=experiments/digits_five_fold/config.py
About 25 seconds on two CPU cores; the claim takes that fifteen times: five folds, three seeds.
"""

from jddl import default_config


def get_config():
    """Two stages of one block, 24 passes over the data, the learning rate falls like a cosine."""
    config = default_config()
    config.model = "resnet(stages=[1, 1], width=16)"
    config.mesh = "data=2"
    config.batch_size = 60
    schedule = "cosine_decay_schedule(init_value=0.01, decay_steps=500)"
    config.optimizer = f"adamw(learning_rate={schedule}, weight_decay=0.3)"
    config.steps = 500
    return config
