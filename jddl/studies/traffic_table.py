"""What one step sends, by operation and axis: from the jaxpr, the compiled program, a formula."""

from __future__ import annotations

from typing import Any

import jax

from jddl import accounting
from jddl.experiment import Experiment
from jddl.loop import compiled_step, measured_step
from jddl.mesh import Mesh, size
from jddl.runtimes.shard_map import shard_map
from jddl.studies._bytes import closed_form

Place = tuple[str, tuple[str, ...]]  # XLA's opcode, axes of more than one rank in mesh order

# JAX's primitive -> XLA's opcode
OPCODES = {
    "psum": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "ppermute": "collective-permute",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}
EQUAL, WIDENED, DIFFERS = "equal", "equal, widened", "DIFFERS"


def traffic_table(experiment: Experiment) -> list[dict[str, Any]]:
    """A row for each operation and axes, with all sent bytes beside one another.

    {'operation', 'axes', 'calls', 'rounds', 'payload_bytes', 'sent_bytes', 'received_bytes',
    'hlo_calls', 'hlo_rounds', 'hlo_sent_bytes', 'hlo_received_bytes', 'closed_form', 'verdict'}.
    Where the runtime compiles no collective (vmap), the same step is compiled under shard_map;
    without enough devices for that the 'hlo_' numbers are None. 'closed_form' is None where nobody
    wrote one. XLA knows opcodes, so psum and pmax over the same axes stand together, on the first
    row. Verdicts are of bytes, since XLA merges native collectives: 'equal'; 'equal, widened' where
    XLA:CPU moves a native collective's bfloat16 as float32 or float8 as float16 (the jaxpr's bytes
    are then those of an accelerator); 'DIFFERS'.
    """
    traced = measured_step(experiment)
    widened = accounting.widened_on_cpu(traced) if jax.default_backend() == "cpu" else traced
    compiled, expected = _compiled(experiment), closed_form(experiment)
    mesh, rows = experiment.mesh, traced.by_operation
    sent, on_cpu = _by_place(rows, mesh), _by_place(widened.by_operation, mesh)
    table, seen = [], set()
    for row in rows:
        place = _place(row, mesh)
        hlo = compiled.get(place, _NOTHING) if compiled is not None and place not in seen else None
        formula = None
        if expected is not None:
            formula = float(expected.get((row["operation"], row["axes"]), 0))
        verdict = EQUAL
        if hlo is not None and hlo["sent_bytes"] != sent[place]:
            verdict = WIDENED if hlo["sent_bytes"] == on_cpu[place] else DIFFERS
        if formula is not None and formula != row["sent_bytes"]:
            verdict = DIFFERS
        seen.add(place)
        table.append(_row(row, hlo, formula, verdict))
    # what the jaxpr does not have and another count has
    for key in sorted(set(expected or {}) - {(row["operation"], row["axes"]) for row in rows}):
        table.append(_row(_absent(key), None, float((expected or {})[key]), DIFFERS))
    for key in sorted(set(compiled or {}) - seen):
        table.append(_row(_absent(key), (compiled or {})[key], None, DIFFERS))
    return table


_NOTHING = {"calls": 0, "rounds": 0, "sent_bytes": 0, "received_bytes": 0}


def _absent(key: Place) -> dict[str, Any]:
    return {"operation": key[0], "axes": key[1], "payload_bytes": 0, **_NOTHING}


def _row(row: Any, hlo: Any, formula: float | None, verdict: str) -> dict[str, Any]:
    beside = {f"hlo_{name}": None if hlo is None else hlo[name] for name in _NOTHING}
    axes = list(row["axes"])
    return {**row, "axes": axes, **beside, "closed_form": formula, "verdict": verdict}


def _compiled(experiment: Experiment) -> dict[Place, dict[str, Any]] | None:
    """The compiled program's numbers by opcode and axes, None without enough devices."""
    mesh = experiment.mesh
    if experiment.runtime.devices(mesh) < size(mesh):
        if jax.device_count() < size(mesh):
            return None
        experiment = experiment._replace(runtime=shard_map())
    found = accounting.measure_hlo(compiled_step(experiment), mesh)
    return {_place(row, mesh): row for row in found.by_operation}


def _by_place(rows: list[dict[str, Any]], mesh: Mesh) -> dict[Place, float]:
    """Sent bytes; the rows of one place are summed."""
    sent: dict[Place, float] = {}
    for row in rows:
        sent[_place(row, mesh)] = sent.get(_place(row, mesh), 0) + row["sent_bytes"]
    return sent


def _place(row: dict[str, Any], mesh: Mesh) -> Place:
    axes = tuple(name for name in mesh if name in row["axes"] and mesh[name] > 1)
    return OPCODES.get(row["operation"], row["operation"]), axes
