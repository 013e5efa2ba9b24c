"""Three workers, one quadratic each; top-1 of 3 entries with error feedback.

jddl train --config=experiments/error_feedback/config.py --shelf=experiments/error_feedback/shelf \
    --workdir=runs/three
The loss goes to 0; with --config.aggregator='compressed(topk(ratio=0.3))' it grows without bound.
"""

from jddl import default_config


def get_config():
    """3 workers, learning rate 0.05."""
    config = default_config()
    config.task, config.model = "three_quadratics", "point"
    config.mesh, config.runtime, config.batch_size = "data=3", "vmap", 3
    config.optimizer = "sgd(learning_rate=0.05)"
    config.aggregator = "error_feedback(topk(ratio=0.3))"
    config.steps = 200
    return config
