"""Measure what one training step sends: jaxpr, compiled program and closed form side by side."""

from __future__ import annotations

from typing import Any

from absl import flags

from jddl.cli._flags import new_flags, parse_with_config, text_or_json

COLUMNS = {
    "operation": "operation",
    "axes": "axes",
    "calls": "calls",
    "rounds": "rounds",
    "sent_bytes": "sent B",
    "received_bytes": "received B",
    "hlo_calls": "HLO: calls",
    "hlo_rounds": "rounds",
    "hlo_sent_bytes": "sent B",
    "hlo_received_bytes": "received B",
    "closed_form": "formula: sent B",
    "verdict": "verdict",
}
LEFT = ("operation", "axes", "verdict")
MOST_SIMULATED = 64  # devices; a vmapped config of more workers is not compiled
NOTES = {
    "equal, widened": "widened: XLA:CPU moves a native collective's bfloat16 as float32 and its "
    "float8 as float16; an accelerator moves the bytes of the jaxpr",
    "no closed form": "no closed form: nobody wrote one for this aggregator or model",
}


def run(argv: list[str]) -> int:
    """`jddl measure --config=FILE [--config.FIELD=VALUE ...] [--json]`; exit code 1 on DIFFERS."""
    values = new_flags("measure", __doc__)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"measure takes no argument {rest[0]!r}; flags begin with --")
    from jddl.experiment import validate
    from jddl.loop import traffic
    from jddl.mesh import size
    from jddl.runtimes._devices import ensure_devices
    from jddl.studies.traffic_table import traffic_table

    experiment = validate(config, allow)
    needed, workers = experiment.runtime.devices(experiment.mesh), size(experiment.mesh)
    if needed < workers <= MOST_SIMULATED:
        ensure_devices(workers, at_most=True)  # to compile the same step under shard_map
    else:
        ensure_devices(needed)
    rows, whole = traffic_table(experiment), traffic(experiment)
    table = render(rows)
    notes = [note for word, note in NOTES.items() if word in table]
    text = "\n".join([table, "", f"one worker, one step; whole step: {_numbers(whole)}", *notes])
    text_or_json(values, {"rows": rows, "step": whole}, text)
    return 1 if any(row["verdict"] == "DIFFERS" for row in rows) else 0


def render(rows: list[dict[str, Any]]) -> str:
    """A plain aligned table."""
    if rows and all(row["closed_form"] is None for row in rows):
        rows = [{**row, "closed_form": "no closed form"} for row in rows]
    body = [[_cell(row[name]) for name in COLUMNS] for row in rows]
    heads = list(COLUMNS.values())
    widths = [max(len(line[i]) for line in [heads, *body]) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if heads[i] in LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [heads, *body]
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]] if body else ["nothing travels"])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(value)
    return f"{value:,.10g}" if isinstance(value, (int, float)) else str(value)


def _numbers(whole: dict[str, Any]) -> str:
    names = ("payload_bytes", "sent_bytes", "received_bytes", "rounds")
    return ", ".join(f"{name} {whole[name]:,}" for name in names)
