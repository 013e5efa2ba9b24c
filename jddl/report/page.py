"""One self-contained HTML page about several runs: table, curves, config differences."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jddl.report import tables
from jddl.runs import Run

# Okabe and Ito's palette: distinct also for colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
DASHES = ("-", "--", ":", "-.")

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em;
       color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92em }
th, td { text-align: right; padding: .3em .8em; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace }
figure { margin: 1em 0 } figure svg { width: 100%; height: auto } .wide { overflow-x: auto }
figcaption, p.note { color: #555; font-size: .9em }
"""


def write_page(
    path: str | Path, rows: Sequence[dict[str, Any]], runs: Sequence[tuple[str, Run]]
) -> None:
    """Write the page.

    Args:
      path: the .html file.
      rows: as `tables.row` makes them.
      runs: (label, run) for the curves.
    """
    curves = _curves(runs)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>jddl report</title>
<style>{STYLE}</style></head><body>
<h1>jddl report: {len(runs)} run{"s" if len(runs) != 1 else ""}</h1>
<p class="note">Bytes are per worker and step, read off the traced program. The modelled step
time is for the cluster &ldquo;{html.escape(runs[0][1].summary["cluster"])}&rdquo; without
overlap. Wall time is of this machine, with simulated devices where it has no others: it says
nothing about a network.</p>
<div class="wide">{_table(rows)}</div>
{"".join(f'<p class="note">{html.escape(line)}</p>' for line in tables.notes(rows))}
<h2>Training loss</h2>
<figure id="curves">{curves}<figcaption>Training loss against steps, bytes sent
per worker, and modelled time.</figcaption></figure>
<h2>What differs between the configs</h2>
<div class="wide">{_differences(runs)}</div>
</body></html>
"""
    Path(path).write_text(page)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    shown = tables.columns(rows)
    head = "".join(f"<th>{html.escape(h)}</th>" for h in ["variant", *shown.values()])
    lines = []
    for r in rows:
        first = f"<td>{html.escape(r['variant'])}</td>"
        if "reason" in r:
            why = html.escape(r["reason"])
            rest = f'<td colspan="{len(shown)}" style="text-align:left">n/a: {why}</td>'
        else:
            rest = "".join(f"<td>{html.escape(tables.cell_text(c, r))}</td>" for c in shown)
        lines.append(f"<tr>{first}{rest}</tr>")
    return f'<table id="results"><tr>{head}</tr>{"".join(lines)}</table>'


def _differences(runs: Sequence[tuple[str, Run]]) -> str:
    configs = [run.config for _, run in runs]
    fields = [f for f in configs[0] if len({str(c.get(f)) for c in configs}) > 1]
    if not fields:
        return '<p id="differences">The configs are equal.</p>'
    head = "".join(f"<th>{html.escape(f)}</th>" for f in ["run", *fields])
    lines = [
        "<tr>"
        + f"<td>{html.escape(label)}</td>"
        + "".join(f"<td>{html.escape(str(run.config.get(f)))}</td>" for f in fields)
        + "</tr>"
        for label, run in runs
    ]
    return f'<table id="differences"><tr>{head}</tr>{"".join(lines)}</table>'


def _curves(runs: Sequence[tuple[str, Run]]) -> str:
    """Three panels as one inline SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "jddl", "font.size": 9})
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True)
    scales = (
        ("step", 1.0, None),
        ("megabytes sent per worker", 1e-6, "sent_bytes"),
        ("modelled milliseconds", 1e3, "modelled_step_seconds"),
    )
    for panel, (title, unit, per_step) in zip(axes, scales, strict=True):
        for index, (label, run) in enumerate(runs):
            points = [m for m in run.metrics if "loss" in m]
            scale = unit * (run.summary[per_step] if per_step else 1)
            panel.plot(
                [m["step"] * scale for m in points],
                [m["loss"] for m in points],
                color=COLOURS[index % len(COLOURS)],
                linestyle=DASHES[(index + index // len(COLOURS)) % len(DASHES)],
                linewidth=1.6,
                label=label,
                gid=f"curve-{index}-{per_step or 'step'}",
            )
        panel.set_xlabel(title)
        panel.set_yscale("log")
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("training loss")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.05 * (1 + len(runs) // 2)))
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
