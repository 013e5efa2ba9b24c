"""A small language model learns real text on a plain CPU."""

import numpy as np
from scipy import stats

from jddl.experiment import load_config
from jddl.loop import train
from jddl.studies.reproduce import Claim, Expected

SEEDS = (0, 1, 2)


def run(folder, quick):
    """The upper end of a 95 % interval over the seeds' bits per byte, and the slowest run."""
    config, _ = load_config(folder / "config.py")
    bits, seconds = [], []
    for seed in SEEDS[: 2 if quick else 3]:
        changes = {"seed": seed} | ({"steps": 30} if quick else {})
        summary = train(dict(config) | changes).summary
        bits.append(summary["validation_bits_per_byte"])
        seconds.append(summary["wall_seconds"])
    half = stats.t.ppf(0.975, len(bits) - 1) * np.std(bits, ddof=1) / np.sqrt(len(bits))
    return {
        "validation bits a byte, mean": float(np.mean(bits)),
        "validation bits a byte, upper end": float(np.mean(bits) + half),
        "minutes of the slowest run": max(seconds) / 60,
    }


CLAIM = Claim(
    source="jddl, configs/lm.py: no published number; the corpus is the standard library of the "
    "Python that runs it, whole files held out",
    statement="A decoder of 1.2 M parameters falls below 2.6 validation bits a byte on Python's "
    "standard library within 20 minutes on two CPU cores",
    kind="training with seeds",
    expected={
        "validation bits a byte, mean": Expected(2.6, "at most"),
        "validation bits a byte, upper end": Expected(2.6, "at most"),
        "minutes of the slowest run": Expected(20, "at most"),
    },
    run=run,
    seeds=SEEDS,
)
