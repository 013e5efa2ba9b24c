"""Published claims as folders: run them, compare with what was published, keep the results.

`experiments/NAME/claim.py` defines `CLAIM = Claim(...)`; the file is loaded by path and never
imported by jddl.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jddl.catalog import alternatives
from jddl.runs import environment

KINDS = (
    "measured bytes", "training with seeds", "modelled time", "wall time",
    "closed form against the real component",
)  # fmt: skip
Relation = Literal["equal", "at most", "at least"]


class Expected(NamedTuple):
    """A published number: value, how it binds, and the tolerance (absolute, in the same unit)."""

    value: float
    relation: Relation = "equal"
    tolerance: float = 0.0

    def holds(self, obtained: float) -> bool:
        """Whether an obtained number agrees."""
        match self.relation:
            case "at most":
                return obtained <= self.value + self.tolerance
            case "at least":
                return obtained >= self.value - self.tolerance
        return abs(obtained - self.value) <= self.tolerance

    def __str__(self) -> str:
        word = "" if self.relation == "equal" else f"{self.relation} "
        return f"{word}{self.value:g}" + (f" ± {self.tolerance:g}" if self.tolerance else "")


class Claim(NamedTuple):
    """One published claim.

    source: author, title, year, where in it; statement: in one sentence; kind: one of KINDS;
    expected: {quantity: Expected}; run(folder, quick) -> {quantity: number}, obtained from a run of
    the real components; found: what we found where we fail to reproduce it (then it stays).
    seeds: that the run uses.
    """

    source: str
    statement: str
    kind: str
    expected: Mapping[str, Expected]
    run: Callable[[Path, bool], Mapping[str, float]]
    seeds: tuple[int, ...] = ()
    found: str = ""


class Outcome(NamedTuple):
    """What running a claim gave. obtained: {quantity: number}; passed: each of them agrees."""

    name: str
    claim: Claim
    obtained: dict[str, float]
    passed: bool
    wall_seconds: float


def folder() -> Path:
    """experiments/ in the working directory, else the one that jddl ships."""
    package = Path(__file__).parent.parent
    for root in (Path(), package / "_shipped", package.parent):
        if any((root / "experiments").glob("*/claim.py")):
            return root / "experiments"
    raise ValueError("no experiments/ folder with claims here or in the installed package")


def names() -> list[str]:
    """The claims there are."""
    return sorted(path.parent.name for path in folder().glob("*/claim.py"))


def load(name: str) -> Claim:
    """Read a claim.

    Raises:
      ValueError: unknown name, a file without CLAIM or with an unknown kind of evidence.
    """
    path = folder() / name / "claim.py"
    if name not in names():
        raise ValueError(f"no claim {name!r}; " + alternatives(name, names()))
    spec = importlib.util.spec_from_file_location(f"jddl_claim_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    claim = getattr(module, "CLAIM", None)
    if not isinstance(claim, Claim):
        raise ValueError(f"{path} defines no CLAIM = Claim(...)")
    if claim.kind not in KINDS:
        raise ValueError(f"{path}: kind {claim.kind!r}; there are: {', '.join(KINDS)}")
    return claim


def run(name: str, quick: bool = False) -> Outcome:
    """Run a claim and judge it."""
    claim, started = load(name), time.perf_counter()
    obtained = {k: float(v) for k, v in claim.run(folder() / name, quick).items()}
    if set(obtained) != set(claim.expected):
        raise ValueError(f"claim {name}: obtained {sorted(obtained)}, not what it expects")
    passed = all(claim.expected[k].holds(v) for k, v in obtained.items())
    return Outcome(name, claim, obtained, passed, time.perf_counter() - started)


def record(outcome: Outcome, quick: bool) -> Path:
    """Write experiments/NAME/result.json: date, versions, seeds, numbers."""
    found = environment()
    values = {
        "date": datetime.date.today().isoformat(),
        "passed": outcome.passed,
        "quick": quick,
        "seeds": list(outcome.claim.seeds),
        "kind": outcome.claim.kind,
        "statement": outcome.claim.statement,
        "source": outcome.claim.source,
        "found": outcome.claim.found,
        "quantities": {
            name: {"expected": str(outcome.claim.expected[name]), "obtained": value}
            for name, value in outcome.obtained.items()
        },
        "wall_seconds": round(outcome.wall_seconds, 1),
        "versions": found["versions"],
    }
    path = folder() / outcome.name / "result.json"
    path.write_text(json.dumps(values, indent=1) + "\n")
    return path


def table() -> str:
    """experiments/RESULTS.md from the recorded results."""
    lines = [
        "# Claims",
        "",
        "Written by `jddl reproduce --table` from each folder's `result.json`.",
        "",
        "| claim | statement | expected | obtained | | date |",
        "|---|---|---|---|---|---|",
    ]
    for name in names():
        path = folder() / name / "result.json"
        if not path.exists():
            lines.append(f"| {name} | {load(name).statement} | | not recorded | | |")
            continue
        values: dict[str, Any] = json.loads(path.read_text())
        quantities = values["quantities"]
        expected = "; ".join(f"{k} {v['expected']}" for k, v in quantities.items())
        obtained = "; ".join(f"{v['obtained']:g}" for v in quantities.values())
        verdict = "PASS" if values["passed"] else f"FAIL {values['found']}".strip()
        lines.append(
            f"| [{name}]({name}/README.md) | {values['statement']} ({values['kind']}; "
            f"{values['source']}) | {expected} | {obtained} | {verdict} | {values['date']} |"
        )
    return "\n".join(lines) + "\n"
