"""jddl: an executable taxonomy of distributed deep learning, in JAX.

This file is the table of contents; names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jddl.accounting import measure as measure
    from jddl.catalog import make as make
    from jddl.clipping import clip_by_global_norm as clip_by_global_norm
    from jddl.collectives._api import all_reduce as all_reduce
    from jddl.collectives._api import copy_to as copy_to
    from jddl.collectives._api import reduce_from as reduce_from
    from jddl.collectives._api import schedule as schedule
    from jddl.experiment import default_config as default_config
    from jddl.experiment import validate as validate
    from jddl.loop import train as train
    from jddl.mesh import Own as Own
    from jddl.mesh import state_specs as state_specs
    from jddl.models._own import from_functions as from_functions
    from jddl.models._own import from_nnx as from_nnx
    from jddl.network.cluster import cluster as cluster
    from jddl.studies.verify import verify as verify
    from jddl.trees import Local as Local

__version__ = "0.1.0"

_HOME = {
    "measure": "jddl.accounting",
    "make": "jddl.catalog",
    "all_reduce": "jddl.collectives._api",
    "copy_to": "jddl.collectives._api",
    "reduce_from": "jddl.collectives._api",
    "schedule": "jddl.collectives._api",
    "default_config": "jddl.experiment",
    "validate": "jddl.experiment",
    "clip_by_global_norm": "jddl.clipping",
    "train": "jddl.loop",
    "Own": "jddl.mesh",
    "state_specs": "jddl.mesh",
    "from_functions": "jddl.models._own",
    "from_nnx": "jddl.models._own",
    "cluster": "jddl.network",
    "verify": "jddl.studies.verify",
    "Local": "jddl.trees",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jddl' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
