"""docs/coverage.md against the file system: it names what exists, and all of it."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from jddl.experiment import DEFAULTS

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "coverage.md"
MINIMUM = 283  # never lower it: a name stays, only its status changes
SHELVES = (
    "collectives",
    "topologies",
    "compressors",
    "aggregators",
    "pipelines",
    "protocols",
    "layouts",
    "outers",
)


class Row(NamedTuple):
    line: int
    name: str
    paper: str
    year: str
    section: str
    component: str
    config: str
    status: str

    @property
    def components(self):
        return [part.strip() for part in self.component.split(",") if part.strip()]

    @property
    def place(self):
        return f"docs/coverage.md:{self.line}: {self.name!r}"


HEADER = list(Row._fields[1:])


def cells(line):
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def rows():
    found = []
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        if not line.lstrip().startswith("|") or cells(line) == HEADER:
            continue
        if all(re.fullmatch(r":?-{2,}:?", cell) for cell in cells(line)):
            continue
        count = len(cells(line))
        assert count == len(HEADER), (
            f"docs/coverage.md:{number}: {count} cells, not {len(HEADER)} ({', '.join(HEADER)}): "
            f"{line}"
        )
        found.append(Row(number, *cells(line)))
    return found


def report(problems):
    assert not problems, "\n" + "\n".join(problems)


def test_named_components_and_configs_exist():
    problems = []
    for row in rows():
        for part in row.components:
            if part.startswith("field "):
                if part.removeprefix("field ") not in DEFAULTS:
                    problems.append(f"{row.place}: a config has no {part}")
            elif not re.fullmatch(r"\w+/[a-z]\w*", part):
                problems.append(f"{row.place}: component {part!r} is not of the form shelf/name")
            elif not (ROOT / "jddl" / f"{part}.py").is_file():
                problems.append(f"{row.place}: there is no jddl/{part}.py")
        if row.config and not re.fullmatch(r"configs/[\w/]+\.py", row.config):
            problems.append(
                f"{row.place}: config {row.config!r} is not of the form configs/NAME.py"
            )
        elif row.config and not (ROOT / row.config).is_file():
            problems.append(f"{row.place}: there is no {row.config}")
    report(problems)


def test_every_component_has_a_row():
    named = {part for row in rows() for part in row.components}
    components = [
        f"{shelf}/{path.stem}"
        for shelf in SHELVES
        for path in sorted((ROOT / "jddl" / shelf).glob("*.py"))
        if not path.name.startswith("_")
    ]
    assert components, "no component found: do the shelves still lie in jddl/?"
    report(
        [
            f"jddl/{part}.py has no row in docs/coverage.md: name it in its technique's row, "
            "or add one under 'House pieces'"
            for part in components
            if part not in named
        ]
    )


def test_names_are_unique():
    # Case, spaces and hyphens do not make a new name; '+' and '!' do (Hogwild!, Hogwild++).
    key = {row: re.sub(r"[^a-z0-9+!/^]", "", row.name.lower()) for row in rows()}
    count = Counter(key.values())
    report(
        [f"{row.place}: empty name" for row in key if not key[row]]
        + [
            f"{row.place}: {count[key[row]]} rows of this name"
            for row in key
            if count[key[row]] > 1
        ]
    )


def test_status_is_done_or_has_a_reason():
    problems = []
    for row in rows():
        if not re.fullmatch(r"done|not yet: \S.{9,}|out of scope: \S.{9,}", row.status):
            problems.append(
                f"{row.place}: status {row.status!r} is not 'done', 'not yet: REASON' or "
                "'out of scope: REASON' (10 characters or more)"
            )
        elif row.status == "done" and not row.components:
            problems.append(f"{row.place}: done, but no component is named")
        elif row.status != "done" and (row.component or row.config):
            problems.append(f"{row.place}: a component or config is named, but it is not done")
        if not re.fullmatch(r"-|\d{4}(; \d{4})*", row.year):
            problems.append(f"{row.place}: year {row.year!r} is not '-', '2017' or '2017; 2018'")
        if not row.paper or not row.section:
            problems.append(f"{row.place}: paper and section are never empty ('-' for no paper)")
    report(problems)


def test_number_of_rows_is_recorded_and_never_falls():
    recorded = re.findall(r"^Rows: (\d+)$", TABLE.read_text(encoding="utf-8"), re.M)
    assert len(recorded) == 1, f"docs/coverage.md needs one line 'Rows: N', it has {len(recorded)}"
    number = len(rows())
    assert number == int(recorded[0]), (
        f"docs/coverage.md has {number} rows and records 'Rows: {recorded[0]}'"
    )
    assert number >= MINIMUM, (
        f"docs/coverage.md has {number} rows, at least {MINIMUM} are wanted: a name is never taken "
        "out, only its status changes"
    )
