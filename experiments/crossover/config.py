"""Quickstart on links with 10 microseconds and 10 GB/s.

jddl compare --config=experiments/crossover/config.py --workdir=runs/crossover \
    --sweep='model=mlp(hidden=64);mlp(hidden=1024)' --sweep='all_reduce=ring;recursive_doubling'
The column 'modelled step' shows the crossover.
"""

from jddl import default_config


def get_config():
    """8 workers on the default cluster, whose links are those of the claim."""
    config = default_config()
    config.cluster = "cluster(latency=1e-5, bandwidth=1e10)"
    config.runtime = "vmap"
    return config
