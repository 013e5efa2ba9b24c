"""Write one self-contained HTML page about finished runs."""

from __future__ import annotations

from pathlib import Path

from absl import flags

from jddl.cli._flags import new_flags, parse


def run(argv: list[str]) -> int:
    """`jddl report RUN ... --out=report.html`."""
    values = new_flags("report", __doc__)
    flags.DEFINE_string("out", "report.html", "The page to write.", flag_values=values)
    folders = parse(values, argv)
    if not folders:
        raise ValueError("say which runs: jddl report RUN ... --out=report.html")
    if Path(values.out).suffix != ".html":
        raise ValueError(f"--out={values.out} is no .html file")
    from jddl.report import page, tables
    from jddl.runs import read_run

    runs = [(Path(f).name, read_run(f)) for f in folders]
    page.write_page(values.out, [tables.row(label, [r]) for label, r in runs], runs)
    print(values.out)
    return 0
