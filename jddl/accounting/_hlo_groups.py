"""The forms in which XLA writes which devices a collective connects."""

from __future__ import annotations

import math
import re

import numpy as np

from jddl.accounting._mesh import groups_along

_NAME = r"'[^']+'"
_LISTED = re.compile(r"\{(\{\d+(,\d+)*\}(,\s*\{\d+(,\d+)*\})*)?\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(rf"mesh\[({_NAME}=\d+(?:,{_NAME}=\d+)*)\] \{{({_NAME}(?:,{_NAME})*)\}}")


def replica_groups(text: str, num_ranks: int) -> list[list[int]]:
    """Groups of partition ids.

    Args:
      text: `{}` (one group of all), `{{0,1},{2,3}}`, `[4,2]<=[8]T(1,0)` (the numbers 0..7 in the
        shape on the right, transposed, then cut into 4 groups of 2) or
        `mesh['data'=4,'tensor'=2] {'data'}` (groups along axes of a mesh in order).
      num_ranks: devices of the module.

    Raises:
      ValueError: any other form, or ids that are not those of the module's devices.
    """
    if _LISTED.fullmatch(text):
        groups = _lists(text) or [list(range(num_ranks))]
    elif iota := _IOTA.fullmatch(text):
        shape, dims = _ints(iota[1]), _ints(iota[2])
        ids = np.arange(math.prod(dims)).reshape(dims)
        ids = ids.transpose(_ints(iota[3])) if iota[3] else ids
        groups = ids.reshape(shape).tolist()
    elif mesh := _MESH.fullmatch(text):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        groups = groups_along(sizes, re.findall(r"'([^']+)'", mesh[2]))
        if math.prod(sizes.values()) != num_ranks:
            raise ValueError(f"replica_groups={text} do not fit {num_ranks} devices")
    else:
        raise ValueError(f"replica_groups={text} is not understood")
    members = [member for group in groups for member in group]
    if len(set(members)) != len(members) or not set(members) <= set(range(num_ranks)):
        raise ValueError(f"replica_groups={text} do not fit {num_ranks} devices")
    return groups


def source_target_pairs(text: str, num_ranks: int) -> list[tuple[int, int]]:
    """(source, destination) partition ids of `{{0,1},{1,2}}`.

    Raises:
      ValueError: any other form, or ids that are not those of the module's devices.
    """
    pairs = _lists(text) if _LISTED.fullmatch(text) else [[]]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"source_target_pairs={text} is not understood")
    if any(rank >= num_ranks for pair in pairs for rank in pair):
        raise ValueError(f"source_target_pairs={text} do not fit {num_ranks} devices")
    return [(source, target) for source, target in pairs]


def _lists(text: str) -> list[list[int]]:
    return [list(_ints(group)) for group in re.findall(r"\{([\d,]+)\}", text)]


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(","))
