"""Recomputing every block costs one more forward pass, and no result."""

import jax
import numpy as np

from jddl import train
from jddl.experiment import validate
from jddl.loop import measured_step
from jddl.studies.reproduce import Claim, Expected


def run(folder, quick):
    """FLOPs and parameters of one training with and without recomputation."""
    config = dict(validate(folder / "config.py").config) | ({"steps": 3} if quick else {})
    flops, params = {}, {}
    for remat in ("none", "full"):
        experiment = validate(config | {"remat": remat})
        flops[remat] = measured_step(experiment).flops
        params[remat] = jax.tree.leaves(train(config | {"remat": remat}).params)
    apart = [np.abs(a - b).max() for a, b in zip(params["none"], params["full"], strict=True)]
    return {
        "FLOPs, full / none": flops["full"] / flops["none"],
        "largest difference of a parameter": max(apart),
    }


CLAIM = Claim(
    source="Chen et al., Training deep nets with sublinear memory cost, 2016, section 4",
    statement="Dropping what blocks compute costs one more forward pass (4/3 of the FLOPs)",
    kind="closed form against the real component",
    expected={
        "FLOPs, full / none": Expected(4 / 3, tolerance=0.02),
        "largest difference of a parameter": Expected(1e-5, "at most"),
    },
    run=run,
    seeds=(0,),
)
