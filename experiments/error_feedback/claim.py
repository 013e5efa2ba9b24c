"""Top-1 without error feedback diverges on three quadratics; with it, it converges."""

import numpy as np

from jddl import catalog, train
from jddl.experiment import load_config
from jddl.studies.reproduce import Claim, Expected

RATE, STEPS = 0.05, 200


def run(folder, quick):
    """Growth of the point per step without memory; its size after training with it."""
    catalog.add_shelf(folder / "shelf")
    try:
        config = dict(load_config(folder / "config.py")[0])
        steps = 20
        without = train(config | {"aggregator": "compressed(topk(ratio=0.3))", "steps": steps})
        point = np.asarray(without.params["shared"]["point"])
        with_memory = train(config | {"steps": STEPS})
        end = np.asarray(with_memory.params["shared"]["point"])
    finally:
        catalog.remove_shelf(folder / "shelf")
    return {
        "growth a step without memory": float(point.mean() ** (1 / steps)),
        "spread of the entries without memory": float(np.ptp(point) / point.mean()),
        "size after 200 steps with memory": float(np.abs(end).max()),
    }


CLAIM = Claim(
    source="Beznosikov, Horvath, Richtarik and Safaryan, On biased compression for distributed "
    "learning, 2020, Example 1",
    statement="Top-1 gradient descent without memory multiplies x by 1 + 11 r / 6 a step (rate r) "
    "on three strongly convex quadratics; error feedback converges on them",
    kind="closed form against the real component",
    expected={
        "growth a step without memory": Expected(1 + 11 * RATE / 6, tolerance=1e-5),
        "spread of the entries without memory": Expected(0.0, tolerance=1e-5),
        "size after 200 steps with memory": Expected(0.05, "at most"),
    },
    run=run,
    seeds=(0,),
)
