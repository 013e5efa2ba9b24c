"""What `compare --first-difference` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def lines(found: Any, folders: Sequence[str]) -> list[str]:
    """A `studies.first_difference.Difference` in words, one statement a line."""
    text = [f"{field}: {a!r} | {b!r}" for field, (a, b) in found.config.items()]
    text = text or ["the configs are equal"]
    if found.recorded is None:
        text.append("recorded metrics: equal at every step that both logged")
    else:
        text.append(
            f"recorded metrics: part at step {found.recorded.step}, {_values(found.recorded)}"
        )
    for folder, (rows, wrong) in zip(folders, found.replayed, strict=True):
        if wrong is not None:
            text.append(
                f"{folder}: not reproducible on this machine: at step {wrong.step} recorded and "
                f"replayed are {_values(wrong)}"
            )
        elif not rows:
            text.append(f"{folder}: no recorded metrics to hold its replay against")
    if found.compared == "nothing":
        text.append("the parameters have different leaves: nothing to compare bit for bit")
        return text
    what = "whole states" if found.compared == "state" else "parameters"
    if found.compared == "params":
        text.append("the states have different leaves: only the parameters are compared")
    if found.leaf is None:
        text.append(f"no difference in {found.steps} steps ({what}, bit for bit)")
        return text
    leaf = found.leaf
    when = f"after step {leaf.step}" if leaf.step else "as initialised"
    apart = "" if leaf.ulps is None else f", {leaf.ulps:,} ulp{'s' * (leaf.ulps != 1)}"
    others = f"; {leaf.others} more leaves differ" if leaf.others else ""
    others = "; 1 more leaf differs" if leaf.others == 1 else others
    text.append(
        f"first difference: {when}, leaf {leaf.name}: {leaf.largest:.3g} at most{apart}{others} "
        f"({what}, bit for bit)"
    )
    return text


def _values(row: Any) -> str:
    return ", ".join(f"{name} {a!r} | {b!r}" for name, (a, b) in row.values.items())
