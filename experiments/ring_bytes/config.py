"""The quickstart with its gradients over a ring: 8 workers, digits.

jddl train --config=experiments/ring_bytes/config.py --workdir=runs/ring_bytes
Ends with sent_bytes 62,832 = 14/8 of the 35,904 padded gradient bytes.
"""

from jddl import default_config


def get_config():
    """8 workers, ring."""
    config = default_config()
    config.all_reduce = "ring"
    config.steps = 50
    return config
