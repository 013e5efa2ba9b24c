"""Redraw the table of docs/benchmarks.md from the newest JSON of each benchmark.

python -m benchmarks.table
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS, names

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: python -m benchmarks.table -->\n", "<!-- end of results -->\n"
COLUMNS = (
    "limit on", "unit", "limit", "median", "95 % interval", "A/A 95 % interval", "pairs", "verdict"
)  # fmt: skip


def newest(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The newest full result of a benchmark; a --quick one is none."""
    dated = re.compile(re.escape(name) + r"-\d{4}-\d\d-\d\d\.json")
    for path in sorted(folder.glob(f"{name}-*.json"), reverse=True):
        if dated.fullmatch(path.name):
            result: dict[str, Any] = json.loads(path.read_text())
            if not result["quick"]:
                return result
    return None


def render(results: dict[str, dict[str, Any] | None]) -> str:
    """Markdown: for each benchmark where and when it ran, and a row for each of its limits."""
    parts = []
    for name, result in results.items():
        if result is None:
            parts.append(f"### {name}\n\nNo result yet: `python -m benchmarks {name}`.\n")
            continue
        load = ", ".join(f"{x:.2f}" for x in result["load_average"])
        where = (
            f"{result['date']}, {result['processor']} ({result['machine']}), {result['cores']} "
            f"cores, load average before it {load}, Python {result['python']}, jax {result['jax']} "
            f"on {result['platform']}"
        )
        lines = [COLUMNS, ("---",) * len(COLUMNS), *(_cells(row) for row in result["rows"])]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"### {name}\n\n{where}\n\n{table}\n")
    return "\n".join(parts)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    text = "{:.1f}".format if row["unit"] == "us" else "{:.3f}".format
    between = [
        f"{text(low)} to {text(high)}" for low, high in (row["interval"], row["control_interval"])
    ]
    limit = "none" if row["limit"] is None else f"{row['limit']:g}"
    return (
        row["name"], row["unit"], limit, text(row["value"]), *between, str(row["pairs"]),
        row["verdict"],
    )  # fmt: skip


def redraw(page: str, table: str) -> str:
    """The page with the table between its two marks.

    Raises:
      ValueError: a mark is missing.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the line {(END if begin else BEGIN).strip()!r}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    table = render({name: newest(name) for name in names()})
    PAGE.write_text(redraw(PAGE.read_text(), table))
    print(PAGE)


if __name__ == "__main__":
    main()
