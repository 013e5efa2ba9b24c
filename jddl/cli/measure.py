"""Measure what one training step sends: jaxpr, compiled program and closed form side by side."""

from __future__ import annotations

from typing import Any

from absl import flags

from jddl.cli._flags import new_flags, parse_with_config, text_or_json


def run(argv: list[str]) -> int:
    """`jddl measure --config=FILE [--config.FIELD=VALUE ...] [--json]`; exit code 1 on DIFFERS."""
    values = new_flags("measure", __doc__)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"measure takes no argument {rest[0]!r}; flags begin with --")
    from jddl.experiment import validate
    from jddl.loop import traffic
    from jddl.runtimes._devices import ensure_devices
    from jddl.studies.traffic_table import traffic_table

    experiment = validate(config, allow)
    ensure_devices(experiment.runtime.devices(experiment.mesh))
    rows, whole = traffic_table(experiment), traffic(experiment)
    text = f"{render(rows)}\n\none worker, one step; whole step: {_numbers(whole)}"
    text_or_json(values, {"rows": rows, "step": whole}, text)
    return 1 if any(row["verdict"] == "DIFFERS" for row in rows) else 0


def render(rows: list[dict[str, Any]]) -> str:
    """A plain aligned table."""
    names = ["operation", "axes", "calls", "rounds", "sent_bytes", "hlo_sent_bytes", "closed_form",
             "received_bytes", "verdict"]  # fmt: skip
    heads = ["operation", "axes", "calls", "rounds", "sent B", "sent B, HLO", "closed form",
             "received B", "verdict"]  # fmt: skip
    body = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *body]) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i in (0, 1, 8) else cell.rjust(width)
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
