"""Synchronous data parallelism is large-batch training on one device."""

import numpy as np

from jddl.studies.reproduce import Claim, Expected
from jddl.studies.verify import verify


def run(folder, quick):
    """The certificate of the config: leaves that are wrong, the largest float64 difference."""
    certificate = verify(folder / "config.py", steps=5 if quick else 20)
    leaves = [row for row in certificate.rows if row.check == "one device"]
    return {
        "statements of the certificate that fail": sum(
            r.verdict == "BUG" for r in certificate.rows
        ),
        "largest float64 difference": float(np.max([row.float64 for row in leaves])),
    }


CLAIM = Claim(
    source="Goyal et al., Accurate, large minibatch SGD, 2017, section 3: k workers of n examples "
    "each compute the gradient of one batch of k n",
    statement="Training on 8 workers equals training on one device with the whole batch",
    kind="training with seeds",
    expected={
        "statements of the certificate that fail": Expected(0),
        "largest float64 difference": Expected(1e-9, "at most"),
    },
    run=run,
    seeds=(0,),
)
