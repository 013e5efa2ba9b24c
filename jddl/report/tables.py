"""Rows of numbers, and the one table of `compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jddl.runs import Run

COLUMNS = {
    "tuned": "tuned",
    "validation_accuracy": "validation acc",
    "validation_loss": "validation loss",
    "test_accuracy": "test acc",
    "test_loss": "test loss",
    "difference": "difference",
    "final_loss": "loss",
    "payload_bytes": "payload B",
    "sent_bytes": "sent B",
    "rounds": "rounds",
    "modelled_step_seconds": "modelled step",
    "wall_seconds": "wall",
}


def row(label: str, runs: Sequence[Run], reason: str = "") -> dict[str, Any]:
    """{'variant', columns..., 'reason'}; over seeds: mean and 95 % half-width under name_ci."""
    result: dict[str, Any] = {"variant": label}
    if not runs:
        return result | {"reason": reason}
    for name in COLUMNS:
        values = [run.summary[name] for run in runs if name in run.summary]
        if not values:
            continue
        result[name] = sum(values) / len(values) if len(values) > 1 else values[0]
        if len(values) > 1:
            result[f"{name}_ci"] = half_width(values)
    return result


def add_differences(rows: Sequence[dict[str, Any]], runs: Sequence[Sequence[Run]]) -> None:
    """Paired differences to the first variant that ran, seed by seed, with their 95 % interval.

    Of test accuracy, or of test loss where there is none. Pairing removes what the seeds share, so
    the interval is narrower than two separate ones would tell. With fewer than two seeds in common
    there is no interval and hence no difference. Each row gets 'difference' (the mean),
    'difference_ci' (half-width), 'difference_low', 'difference_high', 'difference_to' (variant) and
    'difference_of' (metric).
    """
    first = next((i for i, members in enumerate(runs) if members), None)
    if first is None:
        return
    base = runs[first]
    name = "test_accuracy" if all("test_accuracy" in run.summary for run in base) else "test_loss"
    by_seed = {run.summary["seed"]: run.summary[name] for run in base}
    for index, (values, members) in enumerate(zip(rows, runs, strict=True)):
        apart = [
            run.summary[name] - by_seed[run.summary["seed"]]
            for run in members
            if run.summary["seed"] in by_seed and name in run.summary
        ]
        if index == first or len(apart) < 2:
            continue
        mean, half = sum(apart) / len(apart), half_width(apart)
        values |= {
            "difference": mean, "difference_ci": half, "difference_low": mean - half,
            "difference_high": mean + half, "difference_to": rows[first]["variant"],
            "difference_of": name,
        }  # fmt: skip


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """{column: heading} of what a table of these rows shows.

    A loss stands only where the split has no accuracy; validation only where it chose something.
    """
    shown = {c: h for c, h in COLUMNS.items() if any(c in r for r in rows)}
    for split in ("validation", "test"):
        if f"{split}_accuracy" in shown:
            shown.pop(f"{split}_loss", None)
        if split == "validation" and "tuned" not in shown:
            shown = {c: h for c, h in shown.items() if not c.startswith("validation")}
    for r in rows:
        if "difference" in r:
            name = r["difference_to"]
            name = name if len(name) <= 40 else f"{name[:39]}…"
            shown["difference"] = f"difference to {name} [low, high]"
    return shown


def notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of the table must know: of what the difference is, choices at a grid's edge."""
    of = {r["difference_of"].replace("_", " ") for r in rows if "difference" in r}
    lines = [f"difference: of {name}, seed by seed, with its 95 % t interval" for name in of]
    return [*lines, *(r["warning"] for r in rows if r.get("warning"))]


def half_width(values: Sequence[float]) -> float:
    """Half-width of the 95 % Student-t interval of the mean (two values or more)."""
    from scipy import stats

    n = len(values)
    mean = sum(values) / n
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return float(stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n))


def render(rows: Sequence[dict[str, Any]]) -> str:
    """A plain aligned table; a cell that was not run says n/a and why."""
    shown = columns(rows)
    head = ["variant", *shown.values()]
    body = [
        [r["variant"], *(cell_text(c, r) for c in shown)]
        if "reason" not in r
        else [r["variant"], f"n/a: {r['reason']}"]
        for r in rows
    ]
    widths = [
        max(len(line[i]) for line in [head, *body] if len(line) == len(head) or i == 0)
        for i in range(len(head))
    ]
    lines = []
    for line in [head, *body]:
        cells = [line[0].ljust(widths[0])]
        if len(line) == len(head):
            cells += [cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)]
        else:
            cells += line[1:]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def cell_text(column: str, values: dict[str, Any]) -> str:
    """One cell: the value with its unit, ± its half-width over seeds; '-' where there is none."""
    if column not in values:
        return "-"
    value = values[column]
    text = format_value(column, value)
    if column == "difference":
        return f"{text} [{values['difference_low']:+.4f}, {values['difference_high']:+.4f}]"
    if values.get(f"{column}_ci"):
        text += f" ±{format_value(column, values[f'{column}_ci'])}"
    return text


def format_value(column: str, value: Any) -> str:
    """A number with its unit, as the table shows it."""
    match column:
        case "difference":
            return f"{value:+.4f}"
        case "tuned":
            return ", ".join(f"{name}={chosen}" for name, chosen in value.items())
        case "final_loss" | "test_loss" | "test_accuracy":
            return f"{value:.4f}"
        case "validation_loss" | "validation_accuracy":
            return f"{value:.4f}"
        case "modelled_step_seconds":
            return f"{value * 1e6:,.1f} us"
        case "wall_seconds":
            return f"{value:.1f} s"
        case "rounds" | "payload_bytes" | "sent_bytes":
            return f"{value:,.0f}"
    return f"{value:g}"
