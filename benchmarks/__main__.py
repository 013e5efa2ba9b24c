"""Run benchmarks and write benchmarks/results/NAME-DATE.json.

    python -m benchmarks [NAME ...] [--quick] [--out=DIR]

A benchmark is a file of this folder with `rows(quick)`. Exit code 1 unless every limit holds;
what has none is reported.
--quick: a few tiny repetitions, to see that all runs; written only where --out says.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks.hand_written import N
from jddl.components import alternatives
from jddl.runs import write_json
from jddl.runtimes._devices import ensure_devices

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"


def names() -> list[str]:
    """Every benchmark, sorted."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if "\ndef rows(" in p.read_text())


def machine() -> dict[str, Any]:
    """What can change a time. The load average is that of the last 1, 5 and 15 minutes."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(names())}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny, judges nothing")
    parser.add_argument("--out", type=Path, help="folder of the JSON")
    args = parser.parse_args(argv)
    for name in args.name:
        if name not in names():
            print(f"unknown benchmark {name!r}; {alternatives(name, names())}", file=sys.stderr)
            return 2
    out = args.out or (None if args.quick else RESULTS)
    ensure_devices(N)
    verdicts = []
    for name in args.name or names():
        date, found = datetime.date.today().isoformat(), machine()  # the load before it adds to it
        rows = importlib.import_module(f"benchmarks.{name}").rows(args.quick)
        print(name)
        for row in rows:
            print("  " + line(row), flush=True)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            result = {"benchmark": name, "date": date, "quick": args.quick, **found, "rows": rows}
            write_json(out / f"{name}-{date}.json", result)
        verdicts += [row["verdict"] for row in rows]
    return 0 if args.quick else int(not set(verdicts) <= {"holds", "reported"})


def line(row: dict[str, Any]) -> str:
    """A row as it is printed while the benchmarks run."""
    low, high = row["interval"]
    a_low, a_high = row["control_interval"]
    limit = "no limit" if row["limit"] is None else f"limit {row['limit']:g}"
    return (
        f"{row['name']:44} {row['value']:.3f} [{low:.3f}, {high:.3f}] {row['unit']}, {limit}, "
        f"A/A [{a_low:.3f}, {a_high:.3f}], {row['pairs']} pairs: {row['verdict']}"
    )


if __name__ == "__main__":
    sys.exit(main())
