"""Kernels written in Pallas: those that reach another device are refused, not counted as local."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jddl.accounting._primitives import kind_of

KERNELS = {"pallas_call", "core_map", "mpmd_map"}

_REMOTE = {"semaphore_signal_multicast", "multimem_store", "multimem_load_reduce"}
# Where in what these take the device stands that is meant (nothing: this one): parameter, place.
_TO_A_DEVICE = {
    "dma_start": ("tree", 4),
    "semaphore_signal": ("args_tree", 3),
    "semaphore_signal_parallel": ("args_tree", 3),
}
# Views of another GPU's memory stand in the parameters of the loads and stores that use them.
_VIEWS = ("PeerMemRef", "MulticastRef")


def check_local(eqn: JaxprEqn, axes: Collection[str]) -> None:
    """Raise where a kernel copies to, signals or reads another device.

    Which rank an id in a kernel means is computed by the kernel, so its bytes cannot be read off.

    Args:
      eqn: an equation of one of the KERNELS.
      axes: names of the mesh axes.

    Raises:
      ValueError: the kernel communicates.
    """
    for inner in _equations(eqn):
        if kind_of(inner, axes) or _is_remote(inner):
            kernel = eqn.params.get("name") or eqn.primitive.name
            raise ValueError(
                f"the bytes of {inner.primitive.name!r} in the Pallas kernel {kernel!r} are not "
                "understood: it reaches other devices; count them by hand, or use a JAX collective"
            )


def subprograms(eqn: JaxprEqn) -> list[Jaxpr | ClosedJaxpr]:
    """The jaxprs among an equation's parameters."""
    values = (v if isinstance(v, (tuple, list)) else (v,) for v in eqn.params.values())
    return [v for group in values for v in group if isinstance(v, (Jaxpr, ClosedJaxpr))]


def _equations(eqn: JaxprEqn) -> Iterator[JaxprEqn]:
    for program in subprograms(eqn):
        for inner in (program.jaxpr if isinstance(program, ClosedJaxpr) else program).eqns:
            if subprograms(inner):
                yield from _equations(inner)
            else:
                yield inner


def _is_remote(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    if name in _TO_A_DEVICE:
        tree, place = _TO_A_DEVICE[name]
        taken = eqn.params[tree].unflatten(eqn.invars)
        return len(taken) <= place or bool(jax.tree.leaves(taken[place]))
    return name in _REMOTE or any(view in str(p) for p in eqn.params.values() for view in _VIEWS)
