"""Train a sweep and print one table, or compare finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from jddl.cli._flags import new_flags, parse, parse_with_config, text_or_json


def run(argv: list[str]) -> int:
    """`jddl compare --config=FILE --sweep=... --workdir=DIR`, or `jddl compare RUN RUN ...`."""
    values = new_flags("compare", __doc__)
    flags.DEFINE_multi_string(
        "sweep", [], "FIELD=VALUE;VALUE;... (repeat for a product).", flag_values=values
    )
    flags.DEFINE_multi_string(
        "add", [], "FIELD=VALUE;VALUE;...: more cells, outside the product.", flag_values=values
    )
    flags.DEFINE_list("seeds", [], "For example 0,1,2: intervals over seeds.", flag_values=values)
    flags.DEFINE_string("workdir", None, "Folder of the sweep's runs.", flag_values=values)
    flags.DEFINE_bool("json", False, "Print the rows as JSON.", flag_values=values)
    if not any(a.startswith(("--config", "--flagfile", "-h", "--help")) for a in argv):
        return _finished(values, argv)
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"with --config, compare takes no argument {rest[0]!r}")
    if not values.workdir:
        raise ValueError("say --workdir=DIR: where the runs go")
    if not all(s.strip().isdigit() for s in values.seeds):
        raise ValueError(f"--seeds is a list of numbers, not {','.join(values.seeds)!r}")
    from jddl.cli.train import Progress
    from jddl.report import page, tables
    from jddl.studies.compare import parse_sweeps, product, singly, sweep

    seeds = [int(s) for s in values.seeds] or [config.seed]
    changes = [*product(parse_sweeps(values.sweep)), *singly(parse_sweeps(values.add))]
    cells = sweep(config, changes, seeds, values.workdir, allow, Progress)
    rows = [tables.row(c.label, c.runs, c.reason) for c in cells]
    text_or_json(values, rows, tables.render(rows))
    labelled = [(c.label, r) for c in cells for r in c.runs[:1]]
    if labelled and not values.json:
        target = Path(values.workdir) / "report.html"
        page.write_page(target, rows, labelled)
        print(f"\ncluster: {labelled[0][1].summary['cluster']} (modelled, no overlap)")
        print(f"runs:    {values.workdir}\npage:    {target}")
    return 0


def _finished(values: Any, argv: list[str]) -> int:
    folders = parse(values, argv)
    if not folders:
        raise ValueError("say --config=FILE --sweep=... --workdir=DIR, or name finished runs")
    from jddl.report import tables
    from jddl.runs import read_run

    rows = [tables.row(Path(f).name, [read_run(f)]) for f in folders]
    text_or_json(values, rows, tables.render(rows))
    return 0
