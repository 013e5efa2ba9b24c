"""Run published claims and say PASS or FAIL with the expected and the obtained number."""

from __future__ import annotations

from absl import flags

from jddl.cli._flags import new_flags, parse, text_or_json


def run(argv: list[str]) -> int:
    """`jddl reproduce [NAME ...] [--quick] [--record] [--table]`; exit code 1 where one fails."""
    values = new_flags("reproduce", __doc__)
    flags.DEFINE_bool("quick", False, "Fewer steps and seeds.", flag_values=values)
    flags.DEFINE_bool("record", False, "Write each result.json.", flag_values=values)
    flags.DEFINE_bool("table", False, "Only redraw experiments/RESULTS.md.", flag_values=values)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    wanted = parse(values, argv)
    from jddl.runtimes._devices import ensure_devices
    from jddl.studies import reproduce

    if values.table:
        path = reproduce.folder() / "RESULTS.md"
        path.write_text(reproduce.table())
        print(path)
        return 0
    for name in wanted:
        reproduce.load(name)  # every name is right before anything runs
    ensure_devices(8, at_most=True)
    rows, lines = [], []
    for name in wanted or reproduce.names():
        outcome = reproduce.run(name, values.quick)
        if values.record:
            reproduce.record(outcome, values.quick)
        rows.append({**outcome._asdict(), "claim": outcome.claim.statement})
        verdict = "PASS" if outcome.passed else "FAIL"
        lines.append(f"{verdict} {name} ({outcome.wall_seconds:.1f} s): {outcome.claim.statement}")
        for quantity, number in outcome.obtained.items():
            expected = outcome.claim.expected[quantity]
            lines.append(f"     {quantity}: expected {expected}, obtained {number:g}")
        if not values.json:
            print("\n".join(lines), flush=True)
            lines.clear()
    failed = [row["name"] for row in rows if not row["passed"]]
    text_or_json(values, rows, f"{len(rows) - len(failed)} of {len(rows)} claims hold")
    return 1 if failed else 0
