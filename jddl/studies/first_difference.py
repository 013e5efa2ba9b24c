"""Where two runs part: both are trained again in lockstep and compared bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jddl.experiment import Experiment, load_config, step_shapes, validate
from jddl.loop import jitted_step, means, start
from jddl.runtimes._devices import ensure_devices
from jddl.trees import leaf_names, step_key


class Difference(NamedTuple):
    """What was found.

    config: {field: (first, second)} that differ; row: the first step at which recorded metrics
    differ; step, leaf, size: the first step after which a leaf differs, the first such leaf, its
    largest absolute difference (None: no difference); steps: how many were compared; reproduced:
    whether each replay gives its run's recorded metrics on this machine; compared: 'state', or
    'params' where the states have different leaves.
    """

    config: dict[str, tuple[Any, Any]]
    row: int | None
    step: int | None
    leaf: str | None
    size: float | None
    steps: int
    reproduced: tuple[bool, bool]
    compared: str


def first_difference(
    one: str | Path, two: str | Path, allow_import: tuple[str, ...] = ()
) -> Difference:
    """Replay two runs from their config.json and name the first step and leaf that differ.

    Raises:
      ValueError: no run there, or a config that needs an import that was not allowed.
    """
    folders = (Path(one), Path(two))
    for folder in folders:
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no run (no config.json)")
    configs = [dict(load_config(folder / "config.json")[0]) for folder in folders]
    experiments = [validate(config, allow_import) for config in configs]
    ensure_devices(max(e.runtime.devices(e.mesh) for e in experiments))
    recorded = [_rows(folder) for folder in folders]
    differ = {k: (v, configs[1][k]) for k, v in configs[0].items() if configs[1][k] != v}
    shared = sorted(set(recorded[0]) & set(recorded[1]))
    row = next((s for s in shared if recorded[0][s] != recorded[1][s]), None)

    replays = [_Replay(e, rows) for e, rows in zip(experiments, recorded, strict=True)]
    shapes = [
        [(n, x.shape) for n, x in zip(leaf_names(r.state), jax.tree.leaves(r.state), strict=True)]
        for r in replays
    ]
    whole = shapes[0] == shapes[1]
    steps = min(int(config["steps"]) for config in configs)
    found: tuple[int, str, float] | None = None
    for number in range(1, steps + 1):
        for replay in replays:
            replay.take(number)
        if found is None:
            trees = [r.state if whole else r.params() for r in replays]
            apart = _apart(*trees)
            if apart is not None:
                found = (number, *apart)
    step, leaf, size = found or (None, None, None)
    same = (replays[0].same, replays[1].same)
    return Difference(differ, row, step, leaf, size, steps, same, "state" if whole else "params")


class _Replay:
    """One run, taken again step by step."""

    def __init__(self, experiment: Experiment, recorded: dict[int, Any]) -> None:
        self.experiment, self.recorded, self.same = experiment, recorded, True
        self.state, _ = start(experiment, None)
        self.step = jitted_step(experiment)
        self.sums = jax.tree.structure(step_shapes(experiment)[1])

    def take(self, number: int) -> None:
        """One step; its metrics are held against the recorded ones."""
        config, strategy = self.experiment.config, self.experiment.strategy
        batch = self.experiment.task.batch(number - 1, "train", config.seed)
        batch = self.experiment.runtime.put(batch, self.experiment.mesh, strategy.batch)
        self.state, local = self.step(self.state, batch, step_key(config.seed, number))
        if number in self.recorded:
            self.same &= self.recorded[number] == {"step": number, **means(local, self.sums)}

    def params(self) -> Any:
        return self.experiment.strategy.params_of(self.state)[0]


def _apart(one: Any, two: Any) -> tuple[str, float] | None:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    for name, (a, b) in zip(leaf_names(one), pairs, strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape:
            return name, float("nan")
        if x.tobytes() != y.tobytes():
            return name, float(np.max(np.abs(x.astype(np.float64) - y.astype(np.float64))))
    return None


def _rows(folder: Path) -> dict[int, Any]:
    """Recorded training rows by step (the last row, of the evaluation, has no loss)."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row for row in rows if "loss" in row}
