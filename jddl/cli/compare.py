"""Train a sweep and print one table, or compare finished runs."""

from __future__ import annotations

import sys
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
    flags.DEFINE_multi_string(
        "tune", [], "FIELD.ARGUMENT:VALUE,VALUE,...: each variant at its best on validation.",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_bool(
        "first_difference", False, "Name the step and leaf at which two runs part.",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_list("seeds", [], "For example 0,1,2: intervals over seeds.", flag_values=values)
    flags.DEFINE_string("workdir", None, "Folder of the sweep's runs.", flag_values=values)
    flags.DEFINE_bool("json", False, "Print the rows as JSON.", flag_values=values)
    argv = [a.replace("--first-difference", "--first_difference") for a in argv]
    if not any(a.startswith(("--config", "--flagfile", "-h", "--help")) for a in argv):
        return _finished(values, argv)
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"with --config, compare takes no argument {rest[0]!r}")
    if not values.workdir:
        raise ValueError("say --workdir=DIR: where the runs go")
    if not all(s.strip().isdecimal() for s in values.seeds):
        raise ValueError(f"--seeds is a list of numbers, not {','.join(values.seeds)!r}")
    if values.first_difference:
        raise ValueError("--first-difference compares two finished runs: leave --config out")
    from jddl.cli.train import Progress
    from jddl.report import page, tables
    from jddl.studies._grid import parse_grids
    from jddl.studies.compare import parse_sweeps, product, singly, sweep
    from jddl.studies.tune import tune

    changes = [*product(parse_sweeps(values.sweep)), *singly(parse_sweeps(values.add))]
    if any("seed" in change for change in changes):
        raise ValueError("seed is not swept: say --seeds=0,1,2")
    if len({int(s) for s in values.seeds}) < len(values.seeds):
        raise ValueError(f"--seeds={','.join(values.seeds)} names one twice")
    seeds = [int(s) for s in values.seeds] or [config.seed]
    grids, settings = parse_grids(values.tune), (seeds, values.workdir, allow, Progress)
    tuned = tune(config, changes, grids, *settings) if grids else []
    cells = [t.cell for t in tuned] if grids else sweep(config, changes, *settings)
    rows = [tables.row(c.label, c.runs, c.reason) for c in cells]
    for row, found in zip(rows, tuned, strict=bool(grids)):
        row |= {"tuned": found.chosen, "warning": found.warning, "points": found.points}
    tables.add_differences(rows, [c.runs for c in cells])
    text_or_json(values, rows, "\n".join([tables.render(rows), *tables.notes(rows)]))
    labelled = [(c.label, r) for c in cells for r in c.runs[:1]]
    if labelled and not values.json:
        target = Path(values.workdir) / "report.html"
        page.write_page(target, rows, labelled)
        print(f"\ncluster: {labelled[0][1].summary['cluster']} (modelled, no overlap)")
        print(f"runs:    {values.workdir}\npage:    {target}")
    return 0


def _finished(values: Any, argv: list[str]) -> int:
    flags.DEFINE_multi_string(
        "allow_import", [], "Package from which a run's dotted names may be imported.",
        flag_values=values,
    )  # fmt: skip
    folders = parse(values, argv)
    if not folders:
        raise ValueError("say --config=FILE --sweep=... --workdir=DIR, or name finished runs")
    unused = [f for f in ("sweep", "add", "tune", "seeds", "workdir") if values[f].value]
    if unused:
        raise ValueError(f"--{unused[0]} needs --config=FILE: finished runs are only shown")
    from jddl.report import tables
    from jddl.runs import read_run

    if values.first_difference:
        return _part(values, folders)
    rows = [tables.row(Path(f).name, [read_run(f)]) for f in folders]
    text_or_json(values, rows, tables.render(rows))
    return 0


def _part(values: Any, folders: list[str]) -> int:
    if len(folders) != 2:
        raise ValueError(f"--first-difference compares two runs, not {len(folders)}")
    from jddl.cli._first_difference import lines
    from jddl.studies.first_difference import as_json, first_difference

    sys.path.append("")  # a user's own module in the working directory
    found = first_difference(folders[0], folders[1], tuple(values.allow_import))
    text_or_json(values, as_json(found), "\n".join(lines(found, folders)))
    return 0
