"""Seconds until jddl is imported, and until it has listed its shelves: whole Python processes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks._judge import judge_amount
from benchmarks._pairs import Effort, Question, answer, row
from jddl.studies.bench_timing import alternate


def rows(quick: bool) -> list[dict[str, Any]]:
    bare, importing = (lambda code=code: _python("-c", code) for code in ("pass", "import jddl"))
    listing = lambda: _python("-m", "jddl", "list")  # noqa: E731
    assert "recursive_doubling" in listing()
    question = Question("import jddl adds", 0.1, "s")
    effort = Effort(3, 3) if quick else Effort(20, 100)
    found = answer([question], importing, bare, bare, effort)
    runs, rng = effort.step, np.random.default_rng(0)
    times = alternate(dict.fromkeys(("once", "again"), listing), runs, rng)
    once, again = times["once"].whole, times["again"].whole
    judged = judge_amount(once, again - once, 0.5, rng)
    return [*found, row("jddl list", "s", 0.5, judged, runs)]


def _python(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], check=True, capture_output=True, text=True)
    return done.stdout
