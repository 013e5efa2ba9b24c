"""What one step sends, by operation and axis: from the jaxpr, the compiled program, a formula."""

from __future__ import annotations

from typing import Any

from jddl import accounting
from jddl.experiment import Experiment
from jddl.loop import compiled_step, measured_step
from jddl.mesh import size
from jddl.studies._bytes import closed_form

# JAX's primitive -> XLA's opcode
OPCODES = {
    "psum": "all-reduce",
    "ppermute": "collective-permute",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}


def traffic_table(experiment: Experiment) -> list[dict[str, Any]]:
    """A row for each operation and axes, with all sent bytes beside one another.

    {'operation', 'axes', 'calls', 'rounds', 'sent_bytes', 'received_bytes', 'hlo_sent_bytes',
    'closed_form', 'verdict'}; 'hlo_sent_bytes' is None where the runtime compiles no collective
    (vmap), 'closed_form' where nobody wrote one. XLA keeps no axis names and merges native
    collectives, so its bytes stand by opcode: on the first row of each.
    """
    traced = measured_step(experiment)
    expected = closed_form(experiment)
    compiled: dict[str, float] | None = None
    if experiment.runtime.devices(experiment.mesh) == size(experiment.mesh):
        compiled = {}
        for row in accounting.measure_hlo(compiled_step(experiment)).by_operation:
            name = row["operation"]
            compiled[name] = compiled.get(name, 0) + row["sent_bytes"]
    rows: list[dict[str, Any]] = []
    totals: dict[str, float] = {}
    for row in traced.by_operation:
        totals[row["operation"]] = totals.get(row["operation"], 0) + row["sent_bytes"]
    for row in traced.by_operation:
        name, opcode = row["operation"], OPCODES.get(row["operation"], row["operation"])
        first = name not in [r["operation"] for r in rows]
        hlo = compiled.get(opcode, 0) if compiled is not None and first else None
        formula = float(expected.get(name, 0)) if expected is not None and first else None
        same = all(x is None or x == totals[name] for x in (hlo, formula))
        rows.append(
            {
                **row,
                "axes": list(row["axes"]),
                "hlo_sent_bytes": hlo,
                "closed_form": formula,
                "verdict": "equal" if same else "DIFFERS",
            }
        )
    seen = {OPCODES.get(name, name) for name in totals}
    for opcode in sorted(set(compiled or {}) - seen):  # a collective that the jaxpr does not have
        assert compiled is not None
        rows.append({"operation": opcode, "axes": [], "calls": 0, "rounds": 0, "sent_bytes": 0,
                     "received_bytes": 0, "payload_bytes": 0, "closed_form": None,
                     "hlo_sent_bytes": compiled[opcode], "verdict": "DIFFERS"})  # fmt: skip
    return rows
