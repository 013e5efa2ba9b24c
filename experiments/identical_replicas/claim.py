"""Replicas stay bit-identical whichever all-reduce carries the gradients."""

from jddl import catalog
from jddl.experiment import complete, load_config, validate
from jddl.studies import _on_mesh
from jddl.studies.reproduce import Claim, Expected


def run(folder, quick):
    """Replicated leaves that differ in any bit between 8 workers, over all all-reduces."""
    config = dict(load_config(folder / "config.py")[0])
    parted, tried = 0, 0
    for algorithm in catalog.examples("collectives"):
        experiment = validate(complete(config | {"all_reduce": algorithm}))
        parted += len(_on_mesh.replicas(experiment, 3 if quick else 10))
        tried += 1
    return {"leaves that differ": parted, "all-reduces tried": tried}


CLAIM = Claim(
    source="Li et al., PyTorch Distributed, 2020, section 3: replicas that start equal and apply "
    "the same reduced gradients stay equal, so parameters need not be sent again",
    statement="Replicas are bit-identical after training under each all-reduce of the shelf",
    kind="training with seeds",
    expected={"leaves that differ": Expected(0), "all-reduces tried": Expected(4, "at least")},
    run=run,
    seeds=(0,),
)
