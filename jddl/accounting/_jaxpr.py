"""Measure a step by one recursive walk over its jaxpr; needs no devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.interpreters import partial_eval

from jddl.accounting._flops import flops
from jddl.accounting._fold import Known, fold, literal, scalar
from jddl.accounting._marks import PAYLOAD
from jddl.accounting._operation import nbytes, operation
from jddl.accounting._pallas import KERNELS, check_local, subprograms
from jddl.accounting._primitives import kind_of
from jddl.accounting._record import Measurement, Tally, dearest

Program: TypeAlias = Jaxpr | ClosedJaxpr


def measure(
    step: Callable[..., Any],
    *args: Any,
    axes: Mapping[str, int] | None = None,
    trip_counts: Sequence[int] = (),
) -> Measurement:
    """Bytes, rounds and FLOPs of one call of `step`, traced and never run.

    Dead code is left out. What the compiler adds (for shardings outside a shard_map) and merges
    is in the HLO alone: see `measure_hlo`.

    Args:
      step: per-device code over the named `axes`; or a function that is itself a shard_map, also
        inside jit: then the mesh is read off and `axes` is not needed.
      args: per-device values or ShapeDtypeStructs, in any pytrees (whole ones for a shard_map).
        0-d integers and bools that are concrete are known numbers: branches that depend on them
        alone are decided.
      axes: {'data': 8, ...} in mesh order.
      trip_counts: how often each `while` loop that communicates runs, in the order in which the
        loops end in the program (an inner loop before the one around it).

    Raises:
      ValueError: a collective that is not understood or names an axis outside the mesh, meshes
        that differ, an axis that a shard_map leaves to the compiler, a Pallas kernel that reaches
        other devices, too few or too many trip counts.

    Example:
      >>> import jax, numpy as np
      >>> x = jax.ShapeDtypeStruct((100,), np.float32)
      >>> measure(lambda x: jax.lax.psum(x, 'data'), x, axes={'data': 8}).sent_bytes
      700
    """
    closed = jax.make_jaxpr(step, axis_env=list((axes or {}).items()))(*args)
    values = [
        scalar(leaf, var.aval.dtype)
        for leaf, var in zip(jax.tree.leaves(args), closed.jaxpr.invars, strict=True)
    ]
    live, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)
    walk = _Walk(dict(axes or {}), list(trip_counts))
    tally, _ = walk.jaxpr(ClosedJaxpr(live, closed.consts), values, "")
    if walk.trip_counts:
        raise ValueError(f"trip_counts {list(trip_counts)} are more than the loops that use one")
    return Measurement(
        walk.axes, tuple(tally.operations), tuple(tally.notes), tally.flops, tally.marked
    )


class _Walk:
    """One walk. `axes` is the mesh once it is known, `trip_counts` those not yet used."""

    def __init__(self, axes: dict[str, int], trip_counts: list[int]) -> None:
        self.axes = axes
        self.trip_counts = trip_counts

    def jaxpr(
        self, program: Program, values: Sequence[Known], scope: str
    ) -> tuple[Tally, list[Known]]:
        """What a jaxpr adds up to, and which of its results are known."""
        inner = _open(program)
        consts = program.consts if isinstance(program, ClosedJaxpr) else ()
        known: dict[Var, Known] = dict(zip(inner.invars, values, strict=True))
        for var, const in zip(inner.constvars, consts, strict=False):
            known[var] = scalar(const, var.aval.dtype)

        def read(atom: Any) -> Known:
            return literal(atom) if isinstance(atom, Literal) else known.get(atom)

        tally = Tally()
        for eqn in inner.eqns:
            # A sub-jaxpr's name stacks start anew: the scope of its equation is passed down.
            here = "/".join(filter(None, (scope, str(eqn.source_info.name_stack))))
            part, results = self.equation(eqn, [read(v) for v in eqn.invars], here)
            tally.add(part)
            known.update(zip(eqn.outvars, results, strict=True))
        return tally, [read(v) for v in inner.outvars]

    def equation(self, eqn: JaxprEqn, values: list[Known], scope: str) -> tuple[Tally, list[Known]]:
        unknown: list[Known] = [None] * len(eqn.outvars)
        match eqn.primitive.name:
            case "scan":
                return self.scan(eqn, values, scope), unknown
            case "while":
                return self.while_loop(eqn, scope), unknown
            case "cond":
                return self.cond(eqn, values, scope)
            case "shard_map":
                self.enter(dict(eqn.params["mesh"].shape), eqn.params["newly_manual_axes"])
                # A per-device result is no whole array: what is known inside stays inside.
                return self.jaxpr(eqn.params["jaxpr"], values, scope)[0], unknown
            case name if name in KERNELS:
                check_local(eqn, self.axes)
                return Tally(notes=[f"FLOPs of a {name} are not counted"]), unknown
        if inner := subprograms(eqn):
            return self.call(eqn, inner, values, scope)
        if kind := kind_of(eqn, self.axes):
            found = operation(eqn, kind, self.axes, scope)
            tally = Tally([found] if found else [])
            if eqn.primitive.name.startswith("ragged"):
                tally.notes.append("a ragged_all_to_all is counted as if its operand were full")
            return tally, unknown
        marked = eqn.primitive.name == "name" and eqn.params["name"] == PAYLOAD
        own = Tally(flops=flops(eqn), marked=nbytes(eqn.invars[0].aval) if marked else 0)
        return own, fold(eqn, values)

    def call(
        self, eqn: JaxprEqn, inner: list[Program], values: list[Known], scope: str
    ) -> tuple[Tally, list[Known]]:
        """jit, remat, custom derivatives: one sub-jaxpr that runs once."""
        unknown: list[Known] = [None] * len(eqn.outvars)
        if len(inner) == 1 and len(_open(inner[0]).outvars) == len(eqn.outvars):
            same = len(_open(inner[0]).invars) == len(values)
            return self.jaxpr(inner[0], values if same else _nothing(inner[0]), scope)
        # The functions that a reduction or a linear solver takes: how often each of them runs is
        # not written down.
        parts = [self.jaxpr(program, _nothing(program), scope)[0] for program in inner]
        name = eqn.primitive.name
        if any(part.communicates for part in parts):
            raise ValueError(f"a collective inside {name!r} is not understood")
        notes = [f"FLOPs inside {name} are not counted"] if any(p.flops for p in parts) else []
        return Tally(notes=notes), unknown

    def scan(self, eqn: JaxprEqn, values: list[Known], scope: str) -> Tally:
        program = eqn.params["jaxpr"]
        body = program.jaxpr
        # Operands are constants, carries and slices. JAX 0.10 and 0.12 write their numbers down
        # differently; carries are the results, slices the operands, of which the body sees the
        # same shape, or one dimension less.
        carries = sum(_same_shape(*pair) for pair in zip(eqn.outvars, body.outvars, strict=True))
        slices = sum(not _same_shape(*pair) for pair in zip(eqn.invars, body.invars, strict=True))
        constants = len(values) - carries - slices
        inside = values[:constants] + [None] * (carries + slices)
        tally = Tally()
        tally.add(self.jaxpr(program, inside, scope)[0], eqn.params["length"])
        return tally

    def while_loop(self, eqn: JaxprEqn, scope: str) -> Tally:
        body, condition = (eqn.params[key] for key in ("body_jaxpr", "cond_jaxpr"))
        each, _ = self.jaxpr(body, _nothing(body), scope)
        test, _ = self.jaxpr(condition, _nothing(condition), scope)
        count = 1
        if each.communicates or test.communicates:
            if not self.trip_counts:
                names = sorted({o.primitive for o in each.operations + test.operations})
                raise ValueError(
                    f"a while loop of unknown length in {scope or 'the step'} communicates "
                    f"({', '.join(names) or 'marked payload'}): give its trip count in "
                    "measure(..., trip_counts=[...]), or use a scan or a fori_loop of constant "
                    "bounds"
                )
            count = self.trip_counts.pop(0)
        elif each.flops or test.flops:
            each.notes.append("FLOPs of a while loop of unknown length are counted once")
        tally = Tally()
        tally.add(each, count)
        tally.add(test, count + 1 if test.communicates else count)
        return tally

    def cond(self, eqn: JaxprEqn, values: list[Known], scope: str) -> tuple[Tally, list[Known]]:
        branches = eqn.params["branches"]
        index, operands = values[0], values[1:]
        if index is not None:
            return self.jaxpr(branches[int(index)], operands, scope)  # a switch has clamped it
        parts = [self.jaxpr(branch, operands, scope)[0] for branch in branches]
        return dearest(parts, scope), [None] * len(eqn.outvars)

    def enter(self, mesh: dict[str, int], manual: frozenset[str]) -> None:
        # Along the other axes the compiler splits arrays and decides what travels.
        if automatic := sorted(name for name in set(mesh) - manual if mesh[name] > 1):
            raise ValueError(
                f"a shard_map over {sorted(manual)} leaves the mesh axes {automatic} to the "
                "compiler, which decides what it moves: use measure_hlo, or name all the axes"
            )
        if self.axes and self.axes != mesh:
            raise ValueError(f"a shard_map over {mesh} stands in a step over {self.axes}")
        self.axes = mesh


def _same_shape(outer: Any, inner: Any) -> bool:
    return getattr(outer.aval, "shape", ()) == getattr(inner.aval, "shape", ())


def _open(program: Program) -> Jaxpr:
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


def _nothing(program: Program) -> list[Known]:
    """Known values for a program of which no argument is known."""
    return [None] * len(_open(program).invars)
