"""The language model of configs/lm.py.

jddl train --config=experiments/language_model/config.py --workdir=runs/language_model
"""

from jddl.experiment import load_config


def get_config():
    """The shipped config itself, so that the claim is about it."""
    return load_config("configs/lm.py")[0]
