"""Ranks of a flattened mesh: its first axis varies slowest, as partition ids do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jddl.accounting._conventions import Group


def groups_along(
    axes: Mapping[str, int],
    names: Sequence[str],
    index_groups: Iterable[Sequence[int]] | None = None,
) -> list[list[int]]:
    """The groups of ranks that a collective over the axes `names` connects.

    Args:
      axes: the mesh, {name: size} in its order.
      names: axes of the collective; members are ordered with the first name varying slowest.
      index_groups: JAX's `axis_index_groups`: a partition of the positions along `names`.

    Raises:
      ValueError: a name that is no axis of the mesh.
    """
    for name in names:
        if name not in axes:
            raise ValueError(f"a collective names the axis {name!r}; the mesh has {dict(axes)}")
    ids = np.arange(math.prod(axes.values())).reshape(tuple(axes.values()))
    order = list(axes)
    kept = [i for i, name in enumerate(order) if name not in names]
    size = math.prod(axes[name] for name in names)
    # int[num_groups, size]: one row for each setting of the other axes
    rows = ids.transpose(kept + [order.index(name) for name in names]).reshape(-1, size)
    if index_groups is None:
        return rows.tolist()
    return [row[list(part)].tolist() for row in rows for part in index_groups]


def axes_within(axes: Mapping[str, int], groups: Iterable[Group]) -> tuple[str, ...]:
    """The axes along which the members of a group differ, in mesh order."""
    shape = tuple(axes.values())
    differs: np.ndarray = np.zeros(len(shape), bool)
    for group in groups:
        coordinates = np.array(np.unravel_index(list(group), shape))  # int[axis, member]
        differs |= (coordinates != coordinates[:, :1]).any(axis=1)
    return tuple(name for name, d in zip(axes, differs, strict=True) if d)
