"""Measure a per-device step by one walk over its jaxpr; needs no devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jax.extend import core

from jddl.accounting._marks import EXCHANGE, PAYLOAD
from jddl.accounting._record import Measurement, Operation, grouped

KINDS = {
    "psum": "all_reduce",
    "psum2": "all_reduce",
    "psum_invariant": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "psum_scatter": "reduce_scatter",
    "unreduced_reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather",
    "all_to_all": "all_to_all",
}
# These name an axis and move nothing.
SILENT = {"axis_index", "pvary", "pcast", "reshard", "axis_size"}


def measure(
    step: Callable[..., Any], *args: Any, axes: Mapping[str, int] | None = None
) -> Measurement:
    """Bytes, rounds and FLOPs of one call of `step`.

    Args:
      step: per-device code over the named `axes`, or a function that is itself a shard_map (also
        inside jit): then the mesh is read off and `axes` is not needed.
      args: per-device values or ShapeDtypeStructs. 0-d integers that are *concrete* (Python or
        NumPy) are known numbers: branches that depend on them alone are folded.
      axes: {'data': 8, ...} in mesh order.

    Raises:
      ValueError: a collective inside a `while` of unknown length, or one that is unknown here.
    """
    env = list((axes or {}).items())
    closed = jax.make_jaxpr(step, axis_env=env)(*args)
    known = {
        var: np.asarray(value)
        for var, value in zip(closed.jaxpr.invars, jax.tree.leaves(args), strict=True)
        if isinstance(value, (int, bool, np.integer, np.ndarray))
        and np.ndim(value) == 0
        and np.asarray(value).dtype.kind in "iub"
    }
    walk = _Walk(dict(axes or {}))
    walk.jaxpr(closed.jaxpr, known, 1, False)
    operations = walk.spread()
    return Measurement(walk.mesh, operations, walk.flops, walk.marked, tuple(walk.notes))


class _Walk:
    def __init__(self, mesh: dict[str, int]) -> None:
        self.mesh = mesh
        self.found: list[tuple[Any, int, int]] = []  # (equation, calls, payload)
        self.flops = 0
        self.marked = 0
        self.notes: list[str] = []

    def jaxpr(self, jaxpr: Any, known: dict[Any, np.ndarray], times: int, inside: bool) -> None:
        live = _live(jaxpr)
        for equation, alive in zip(jaxpr.eqns, live, strict=True):
            if alive:
                self.equation(equation, known, times, inside)

    def equation(self, eqn: Any, known: dict[Any, np.ndarray], times: int, inside: bool) -> None:
        name = eqn.primitive.name
        inside = inside or EXCHANGE in str(eqn.source_info.name_stack)
        if name == "name" and eqn.params["name"] == PAYLOAD:
            self.marked += times * sum(_nbytes(v.aval) for v in eqn.invars)
        elif name in KINDS or name == "ppermute":
            own = 0 if inside or _group_size(eqn, self.mesh) == 1 else _operand_bytes(eqn)
            self.found.append((eqn, times, own))
        elif name == "scan":
            body = eqn.params["jaxpr"].jaxpr
            self.jaxpr(body, {}, times * eqn.params["length"], inside)
        elif name == "while":
            self.while_loop(eqn, times, inside)
        elif name == "cond":
            self.cond(eqn, known, times, inside)
        elif name in ("dot_general", "conv_general_dilated"):
            self.flops += times * _flops(eqn)
        else:
            self.other(eqn, known, times, inside)

    def other(self, eqn: Any, known: dict[Any, np.ndarray], times: int, inside: bool) -> None:
        inner = _inner_jaxprs(eqn)
        if eqn.primitive.name == "shard_map":
            self.mesh = self.mesh or dict(eqn.params["mesh"].shape)
        for jaxpr in inner:
            passed = _pass_known(jaxpr, eqn, known)
            self.jaxpr(jaxpr, passed, times, inside)
            if len(inner) == 1 and len(jaxpr.outvars) == len(eqn.outvars):
                for outer, var in zip(eqn.outvars, jaxpr.outvars, strict=True):
                    if (value := _known(var, passed)) is not None:
                        known[outer] = value
        if not inner:
            if _names_an_axis(eqn) and eqn.primitive.name not in SILENT:
                raise ValueError(f"measure does not know the collective {eqn.primitive.name!r}")
            _fold(eqn, known)

    def while_loop(self, eqn: Any, times: int, inside: bool) -> None:
        part = _Walk(self.mesh)
        for key in ("cond_jaxpr", "body_jaxpr"):
            part.jaxpr(eqn.params[key].jaxpr, {}, times, inside)
        if part.found or part.marked:
            raise ValueError(
                "a collective stands in a while loop of unknown length: use lax.scan or a "
                "fori_loop with constant bounds, so that its trip count is known"
            )
        self.notes.append("FLOPs of a while loop of unknown length are counted once")
        self.flops += part.flops

    def cond(self, eqn: Any, known: dict[Any, np.ndarray], times: int, inside: bool) -> None:
        branches = [b.jaxpr for b in eqn.params["branches"]]
        index = _known(eqn.invars[0], known)
        if index is not None:
            chosen = branches[int(np.clip(int(index), 0, len(branches) - 1))]
            self.jaxpr(chosen, _bind(chosen.invars, eqn.invars[1:], known), times, inside)
            return
        parts = []
        for branch in branches:
            part = _Walk(self.mesh)
            part.jaxpr(branch, _bind(branch.invars, eqn.invars[1:], known), times, inside)
            parts.append(part)
        dearest = max(parts, key=lambda p: Measurement(p.mesh, p.spread()).sent_bytes)
        if any(p.found for p in parts):
            self.notes.append("a branch with collectives is undecided: the dearest was counted")
        self.found += dearest.found
        self.marked += dearest.marked
        self.flops += max(p.flops for p in parts)
        self.notes += dearest.notes

    def spread(self) -> tuple[Operation, ...]:
        """The equations as operations over the ranks of the (now known) mesh."""
        made = [_operation(eqn, self.mesh, calls, own) for eqn, calls, own in self.found]
        return tuple(o for o in made if o.rounds)


def _operation(eqn: Any, mesh: Mapping[str, int], calls: int, own: int) -> Operation:
    axes, ranks = _axes(eqn), math.prod(mesh.values())
    name, nbytes = eqn.primitive.name, _operand_bytes(eqn)
    n = _group_size(eqn, mesh)
    if name != "ppermute":
        each, rounds = grouped(KINDS[name], nbytes, n)
        vector = (each,) * ranks
        return Operation(name, axes, vector, vector, rounds, calls, own)
    sent, received = [Fraction(0)] * ranks, [Fraction(0)] * ranks
    place = _position_along(mesh, axes)
    moved = 0
    for source, target in eqn.params["perm"]:
        if source != target:
            moved += 1
            for rank in range(ranks):
                sent[rank] += nbytes if place[rank] == source else 0
                received[rank] += nbytes if place[rank] == target else 0
    return Operation(name, axes, tuple(sent), tuple(received), int(moved > 0), calls, own)


def _position_along(mesh: Mapping[str, int], axes: tuple[str, ...]) -> np.ndarray:
    """Of each rank of the flattened mesh, its index along `axes` taken as one axis."""
    shape = tuple(mesh.values())
    coordinates = dict(zip(mesh, np.unravel_index(np.arange(math.prod(shape)), shape), strict=True))
    sizes = [mesh[a] for a in axes]
    return np.asarray(np.ravel_multi_index([coordinates[a] for a in axes], sizes))


def _axes(eqn: Any) -> tuple[str, ...]:
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    names = names if isinstance(names, (tuple, list)) else (names,)
    return tuple(a for a in names if isinstance(a, str))


def _group_size(eqn: Any, mesh: Mapping[str, int]) -> int:
    groups = eqn.params.get("axis_index_groups")
    if groups is not None:
        return len(groups[0])
    axes = _axes(eqn)
    missing = [a for a in axes if a not in mesh]
    if missing:
        raise ValueError(f"the axis {missing[0]!r} is not among the axes {dict(mesh)}")
    return math.prod(mesh[a] for a in axes)


def _names_an_axis(eqn: Any) -> bool:
    return bool(_axes(eqn)) and ("axis_name" in eqn.params or "axis_index_groups" in eqn.params)


def _nbytes(aval: Any) -> int:
    return math.prod(aval.shape) * np.dtype(aval.dtype).itemsize


def _operand_bytes(eqn: Any) -> int:
    return sum(_nbytes(v.aval) for v in eqn.invars)


def _flops(eqn: Any) -> int:
    """2 x multiply-adds of a dot product or convolution."""
    out = math.prod(eqn.outvars[0].aval.shape)
    left, right = (v.aval.shape for v in eqn.invars[:2])
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * out * math.prod(left[d] for d in contracted)
    numbers = eqn.params["dimension_numbers"]
    out_channels = right[numbers.rhs_spec[0]]
    return 2 * out * math.prod(right) // out_channels


def _inner_jaxprs(eqn: Any) -> list[Any]:
    """Sub-jaxprs that run once; of custom derivatives only the function itself."""
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        value = eqn.params.get(key)
        if value is not None:
            return [getattr(value, "jaxpr", value)]
    return []


def _live(jaxpr: Any) -> list[bool]:
    """Which equations reach an output or have an effect: dead code is not communicated."""
    wanted = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    alive = []
    for eqn in reversed(jaxpr.eqns):
        effects = [e for e in eqn.effects if type(e).__name__ != "NamedAxisEffect"]
        keep = bool(effects) or any(v in wanted for v in eqn.outvars)
        alive.append(keep)
        if keep:
            wanted |= {v for v in eqn.invars if not isinstance(v, core.Literal)}
    return alive[::-1]


# --- numbers that the walk knows ---------------------------------------------------------------

_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sign": np.sign,
    "rem": np.fmod,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


def _known(var: Any, known: Mapping[Any, np.ndarray]) -> np.ndarray | None:
    if isinstance(var, core.Literal):
        return np.asarray(var.val) if np.ndim(var.val) == 0 else None
    return known.get(var)


def _bind(inner: Any, outer: Any, known: Mapping[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    pairs = zip(inner, (_known(v, known) for v in outer), strict=True)
    return {var: value for var, value in pairs if value is not None}


def _pass_known(jaxpr: Any, eqn: Any, known: Mapping[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    same = len(jaxpr.invars) == len(eqn.invars) and eqn.primitive.name != "shard_map"
    return _bind(jaxpr.invars, eqn.invars, known) if same else {}


def _fold(eqn: Any, known: dict[Any, np.ndarray]) -> None:
    """Evaluate with NumPy where all operands are known scalars (never starts the backend)."""
    if len(eqn.outvars) != 1 or eqn.outvars[0].aval.shape != ():
        return
    values = [_known(v, known) for v in eqn.invars]
    if any(v is None for v in values):
        return
    dtype, name = eqn.outvars[0].aval.dtype, eqn.primitive.name
    if name == "select_n":
        known[eqn.outvars[0]] = np.asarray(values[1 + int(np.asarray(values[0]))])
    elif name in ("convert_element_type", "stop_gradient", "copy"):
        known[eqn.outvars[0]] = np.asarray(values[0]).astype(dtype)
    elif name in _FOLD:
        known[eqn.outvars[0]] = np.asarray(_FOLD[name](*values)).astype(dtype)
