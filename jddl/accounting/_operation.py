"""From an equation of a jaxpr to the operation that it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from jddl.accounting._conventions import grouped, permuted
from jddl.accounting._marks import EXCHANGE
from jddl.accounting._mesh import groups_along
from jddl.accounting._primitives import axes_of
from jddl.accounting._record import Operation


def operation(eqn: JaxprEqn, kind: str, axes: Mapping[str, int], scope: str) -> Operation | None:
    """One call of the collective `eqn`; None where it stays within each rank.

    Args:
      eqn: an equation of a known kind.
      kind: its row in the table of `_conventions`.
      axes: the mesh.
      scope: the name stack it stands in.
    """
    names = axes_of(eqn)
    groups = groups_along(axes, names, eqn.params.get("axis_index_groups"))
    # The further operands of a ragged collective only say where its data go.
    invars = eqn.invars[:1] if eqn.primitive.name == "ragged_all_to_all" else eqn.invars
    size = sum(nbytes(v.aval) for v in invars)
    num_ranks = math.prod(axes.values())
    if kind == "permute":
        pairs = [(group[s], group[t]) for group in groups for s, t in eqn.params["perm"]]
        sent, received, rounds = permuted(pairs, size, num_ranks)
    else:
        if kind == "broadcast":
            first = eqn.params["source"]
            groups = [[g[first], *g[:first], *g[first + 1 :]] for g in groups]
        sent, received, rounds = grouped(kind, groups, size, num_ranks)
    if not rounds:
        return None
    return Operation(
        primitive=eqn.primitive.name,
        axes=names,
        group_size=max(map(len, groups)),
        operand_bytes=size,
        dtype=str(invars[0].aval.dtype),
        sent=sent,
        received=received,
        rounds=rounds,
        calls=1,
        payload_bytes=0 if EXCHANGE in scope else size,
        scope=scope,
    )


def nbytes(aval: Any) -> int:
    """Bytes of an array, packed where an element takes less than one; 0 of a token."""
    if not hasattr(aval, "shape"):
        return 0
    extended = jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)  # PRNG keys
    bits = 8 * aval.dtype.itemsize if extended else jax.dtypes.itemsize_bits(aval.dtype)
    return -(-math.prod(aval.shape) * bits // 8)
