"""Time a shelf's members with their values checked: collectives or compressors."""

from __future__ import annotations

from typing import Any

from absl import flags

from jddl import catalog
from jddl.cli._flags import new_flags, parse, text_or_json

SIZES = {"collectives": ["4K", "256K", "4M"], "compressors": ["64K", "4M"]}


def run(argv: list[str]) -> int:
    """`jddl bench collectives|compressors [SPEC ...]`; exit code 1 where a value is wrong."""
    values = new_flags("bench", __doc__)
    flags.DEFINE_list(
        "sizes", [], "Bytes of a vector, for example 4K,1M (K, M, G: powers of 1024).",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_integer("runs", 30, "Timed calls of each.", lower_bound=1, flag_values=values)
    flags.DEFINE_integer("n", 8, "Ranks (collectives).", lower_bound=1, flag_values=values)
    flags.DEFINE_string("dtype", "float32", "Of the elements (collectives).", flag_values=values)
    flags.DEFINE_string("runtime", "shard_map", "A runtime (collectives).", flag_values=values)
    flags.DEFINE_string(
        "gradients", "", "RUN/gradients/step_N.npz (compressors): a dump instead of --sizes.",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_bool("json", False, "Print the rows as JSON.", flag_values=values)
    rest = parse(values, argv)
    if not rest:
        raise ValueError(f"say what to bench: jddl bench {' | '.join(SIZES)}")
    shelf, *specs = rest
    if shelf not in SIZES:
        if shelf in catalog.shelves():
            raise ValueError(f"the shelf {shelf!r} has no bench; there are: {', '.join(SIZES)}")
        raise ValueError(f"unknown shelf {shelf!r}; {catalog.alternatives(shelf, SIZES)}")
    if values.gradients and shelf != "compressors":
        raise ValueError(f"--gradients has no effect on {shelf}: a compressor codes gradients")
    if values.gradients and values.sizes:
        raise ValueError("--gradients and --sizes exclude each other: a dump has its own size")
    from jddl.studies.bench_timing import parse_sizes

    sizes = parse_sizes(values.sizes or SIZES[shelf])
    return (_collectives if shelf == "collectives" else _compressors)(values, specs, sizes)


def _collectives(values: Any, specs: list[str], sizes: list[int]) -> int:
    from jddl.report.bench import COLLECTIVES, render
    from jddl.runtimes._devices import ensure_devices
    from jddl.studies.bench_collectives import rows, usable
    from jddl.studies.bench_timing import where_run

    runtime = catalog.make("runtimes", values.runtime)
    algorithms, reasons = specs, dict[str, str]()
    if not specs:
        algorithms, reasons = usable(catalog.examples("collectives"), values.n)
    ensure_devices(runtime.devices({"data": values.n}))
    found = rows(algorithms, values.n, sizes, values.dtype, values.runs, runtime)
    note = where_run(values.n)
    text = [render(found, COLLECTIVES), f"n = {values.n} ranks, {values.runs} runs", note]
    text += [f"n/a: {name}: {reason}" for name, reason in reasons.items()]
    report = {"n": values.n, "runs": values.runs, "note": note, "rows": found, "n/a": reasons}
    text_or_json(values, report, "\n".join(text))
    return int(any(row["wrong"] for row in found))


def _compressors(values: Any, specs: list[str], sizes: list[int]) -> int:
    for flag in ("n", "dtype", "runtime"):
        if values[flag].present:
            raise ValueError(f"--{flag} has no effect on compressors: one float32 vector is used")
    import jax

    from jddl.gradients import load
    from jddl.report.bench import COMPRESSORS, GRADIENTS, render
    from jddl.studies.bench_compressors import gradient_rows, rows

    specs, columns = specs or catalog.examples("compressors"), COMPRESSORS
    if values.gradients:
        columns = GRADIENTS
        found = gradient_rows(specs, load(values.gradients), values.runs)
    else:
        found = rows(specs, sizes, values.runs)
    kind = jax.devices()[0].device_kind
    note = f"wall time on one {kind}, {values.runs} runs; '/ copy': throughput relative to a copy"
    report = {"runs": values.runs, "note": note, "rows": found}
    text_or_json(values, report, f"{render(found, columns)}\n{note}")
    return 0
