"""A small MLP on digits over 8 devices.

jddl verify --config=experiments/identical_replicas/config.py --config.all_reduce=ring
Its 'replicas' row says exact.
"""

from jddl import default_config


def get_config():
    """8 workers, shard_map."""
    config = default_config()
    config.model = "mlp(hidden=16)"
    return config
