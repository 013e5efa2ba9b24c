"""Train the product of a sweep, resumably, and put the runs side by side."""

from __future__ import annotations

import itertools
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from jddl import catalog, spec
from jddl.experiment import DEFAULTS, SPEC_FIELDS, complete, validate
from jddl.loop import train
from jddl.runs import Run, read_run
from jddl.runtimes._devices import ensure_devices


class Cell(NamedTuple):
    """One cell of the product: its label, and a run for each seed or the reason for none."""

    label: str
    runs: tuple[Run, ...]
    reason: str = ""


def parse_sweeps(sweeps: list[str]) -> dict[str, list[str]]:
    """['all_reduce=native;ring'] -> {'all_reduce': ['native', 'ring']}."""
    parsed: dict[str, list[str]] = {}
    for text in sweeps:
        field, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"sweep {text!r}: write it as 'field=value;value'")
        if field not in DEFAULTS:
            complete({field: ""})  # raises with the alternatives
        if field in parsed:
            raise ValueError(f"the field {field!r} is swept twice")
        parsed[field] = spec.split_sweep(values)
    return parsed


def product(sweeps: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """The changes of every cell of the product."""
    return [dict(zip(sweeps, v, strict=True)) for v in itertools.product(*sweeps.values())]


def singly(sweeps: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """The changes of cells that differ from the config in one field each."""
    return [{field: value} for field, values in sweeps.items() for value in values]


def sweep(
    config: ConfigDict,
    changes: list[dict[str, str]],
    seeds: list[int],
    workdir: str | Path,
    allow_import: tuple[str, ...] = (),
    progress: Callable[[str], Any] | None = None,
) -> list[Cell]:
    """Train every cell (a set of changed fields) that is not finished in `workdir` yet.

    A cell whose setting has no effect (an all_reduce for gathered payloads) is kept with its
    reason; any other mistake raises before anything is trained.
    """
    plans: list[tuple[str, ConfigDict]] = []
    for changed in changes:
        cell = complete({**dict(config), **{k: _typed(k, v) for k, v in changed.items()}})
        label = label_of(changed, allow_import)
        if any(label == other for other, _ in plans):
            raise ValueError(f"the cell {label!r} stands twice in the sweep")
        plans.append((label, cell))
    checked = [(label, cell, _without_effect(cell, allow_import)) for label, cell in plans]
    needed = [e.runtime.devices(e.mesh) for _, _, e in checked if not isinstance(e, str)]
    ensure_devices(max(needed, default=1))  # the largest mesh first: devices are made once
    cells = []
    for label, cell, reason in checked:
        if isinstance(reason, str):
            cells.append(Cell(label, (), reason))
            continue
        runs, reason = [], ""
        for seed in seeds:
            seeded = complete({**dict(cell), "seed": seed})
            name = f"{label}, seed={seed}" if len(seeds) > 1 else label
            folder = Path(workdir) / _slug(name)
            try:
                run = _finished(folder, seeded)
                runs.append(run or _train(seeded, folder, name, allow_import, progress))
            except ValueError as error:  # it diverged: the other cells go on
                if "not finite" not in str(error):
                    raise
                reason = f"seed {seed}: {error}"
                break
        cells.append(Cell(label, () if reason else tuple(runs), reason))
    return cells


def _train(
    config: ConfigDict, folder: Path, name: str, allow: tuple[str, ...], progress: Any
) -> Run:
    train(config, folder, allow, progress(name) if progress else None)
    return read_run(folder)


def _finished(folder: Path, config: ConfigDict) -> Run | None:
    """The run in a folder if it is this config's and complete: a sweep goes on where it stopped.

    Raises:
      ValueError: another run is there, or this one, which stopped since it was not finite.
    """
    if not (folder / "summary.json").is_file():
        _raise_if_it_diverged(folder, config)
        return None
    run = read_run(folder)
    if run.config != json.loads(json.dumps(dict(config))):
        raise ValueError(f"workdir {folder} holds another run: choose another --workdir")
    return run


def _raise_if_it_diverged(folder: Path, config: ConfigDict) -> None:
    """A run that was stopped would be stopped again: its last row says where, at no cost."""
    if config.on_nonfinite != "stop":
        return
    try:
        recorded = json.loads((folder / "config.json").read_text())
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):  # nothing there, or cut short: it is trained
        return
    if recorded != json.loads(json.dumps(dict(config))):
        return  # training there is refused with a word of its own
    if not math.isfinite(last.get("loss", 0.0)):
        raise ValueError(
            f"the loss is not finite at step {last['step']}; training stopped; delete {folder} to "
            "train it again"
        )


def label_of(changed: Mapping[str, str], allow_import: tuple[str, ...] = ()) -> str:
    """What a cell is called: its changed fields in canonical form."""
    parts = [f"{k}={_canonical(k, v, allow_import)}" for k, v in changed.items()]
    return ", ".join(parts) or "run"


def _without_effect(config: ConfigDict, allow_import: tuple[str, ...]) -> Any:
    """The experiment, or the reason why the cell's setting has no effect."""
    try:
        return validate(config, allow_import)
    except ValueError as error:
        if "has no effect" in str(error):
            return str(error)
        raise


def _typed(field: str, text: str) -> Any:
    wanted = type(DEFAULTS[field])
    try:
        return wanted(text)
    except ValueError:
        raise ValueError(f"sweep: {field} is {wanted.__name__}, not {text!r}") from None


def _canonical(field: str, text: str, allow_import: tuple[str, ...]) -> str:
    if field not in SPEC_FIELDS:
        return text
    return catalog.canonical(SPEC_FIELDS[field], text, allow_import).removesuffix("()")


def _slug(label: str) -> str:
    """A folder name; long labels are cut and told apart by a checksum."""
    name = re.sub(r"[^A-Za-z0-9.=_-]+", "_", label).strip("_") or "run"
    return name if len(name) <= 100 else f"{name[:90]}-{zlib.crc32(label.encode()):08x}"
