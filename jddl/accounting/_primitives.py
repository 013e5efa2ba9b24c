"""The primitives that name a mesh axis, in every supported version of JAX.

All of them stand here: one that names an axis and is in none of the tables is an error, so a new
collective cannot go uncounted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jax.extend.core import JaxprEqn

KINDS = {
    "psum": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
    "psum_invariant": "all_reduce",
    "unreduced_psum": "all_reduce",
    "unreduced_pmax": "all_reduce",
    "unreduced_pmin": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "unreduced_reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather",
    "all_to_all": "all_to_all",
    "ragged_all_to_all": "all_to_all",
    "pbroadcast": "broadcast",
    "ppermute": "permute",
    "psend": "permute",
}

# Casts of the varying type and questions about one's place: they move nothing. The receiving half
# of psend is counted with it.
SILENT = {
    "axis_index",
    "pvary",
    "preduced",
    "vary_unreduced_cast",
    "vary_unreduced_cast_p",
    "reduced_vary_cast",
    "reduced_vary_cast_p",
    "precv",
}

REFUSED = {
    "pbroadcast_dynamic": "which rank is the source is known only when it runs",
    "reshard": "the compiler decides what it moves; use measure_hlo",
    "call_exported": "it is compiled apart; measure the function that was exported",
}


def kind_of(eqn: JaxprEqn, axes: Collection[str]) -> str | None:
    """The kind of collective that an equation is, None where it moves nothing between ranks.

    Args:
      eqn: an equation without sub-jaxprs.
      axes: names of the mesh axes.

    Raises:
      ValueError: it communicates and is not understood.
    """
    name = eqn.primitive.name
    # An asynchronous pair moves its bytes once: at its start.
    if (started := name.removesuffix("_start")) in KINDS:
        return KINDS[started]
    if name in REFUSED:
        raise ValueError(f"the bytes of {name!r} are not understood: {REFUSED[name]}")
    if name in SILENT or name.removesuffix("_done") in KINDS:
        return None
    if named := sorted(_names(eqn) & set(axes)):
        raise ValueError(f"the primitive {name!r} over {named} is not understood")
    return None


def axes_of(eqn: JaxprEqn) -> tuple[str, ...]:
    """The named axes of a collective. Integers among them are dimensions that a vmap left."""
    names = eqn.params.get("axes", eqn.params.get("axis_name"))
    names = names if isinstance(names, tuple) else (names,)
    return tuple(name for name in names if isinstance(name, str))


def _names(eqn: JaxprEqn) -> set[Any]:
    """Every name in its parameters or effects that could be an axis."""
    found = {getattr(effect, "name", None) for effect in eqn.effects}
    for key in ("axes", "axis_name", "axis_names"):
        value = eqn.params.get(key, ())
        values = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
        found |= {v for v in values if isinstance(v, str)}
    return found
