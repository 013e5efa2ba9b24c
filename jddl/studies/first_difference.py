"""Where two runs part: both are trained again in lockstep and compared bit for bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal
from ml_collections import ConfigDict

from jddl import assembly
from jddl.experiment import Experiment, batch_shapes, load_config, step_shapes, validate
from jddl.loop import jitted_step, means, start
from jddl.records import Context
from jddl.runtimes._devices import ensure_devices
from jddl.studies._bits import Leaf, apart
from jddl.trees import leaf_names, step_key


class Row(NamedTuple):
    """The first logged step at which metrics differ, and {metric: (first, second)} there."""

    step: int
    values: dict[str, tuple[Any, Any]]


class Difference(NamedTuple):
    """What was found.

    config: {field: (first, second)} that differ; recorded: the first recorded metrics that differ;
    leaf: the first leaf, in the order in which the first model uses it (params, then statistics and
    optimiser), None where all are equal; steps: how many were compared; replayed: per run how many
    recorded rows its replay was held against, and the first that it does not reproduce here;
    compared: 'state', 'params' where the states have different leaves, 'nothing' where the
    parameters have.
    """

    config: dict[str, tuple[Any, Any]]
    recorded: Row | None
    leaf: Leaf | None
    steps: int
    replayed: tuple[tuple[int, Row | None], tuple[int, Row | None]]
    compared: str


def first_difference(
    one: str | Path, two: str | Path, allow_import: tuple[str, ...] = ()
) -> Difference:
    """Replay two runs (finished or not) from their config.json and say where they part.

    Raises:
      ValueError: no run there, or a config that needs an import that was not allowed.
    """
    folders = (Path(one), Path(two))
    for folder in folders:
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no run (no config.json)")
    configs: list[ConfigDict] = [load_config(folder / "config.json")[0] for folder in folders]
    experiments = [validate(config, allow_import) for config in configs]
    ensure_devices(max(e.runtime.devices(e.mesh) for e in experiments))
    first, second = (dict(config) for config in configs)
    recorded = [_metrics(folder) for folder in folders]
    shared = sorted(recorded[0].keys() & recorded[1].keys())
    rows = (row_difference(s, recorded[0][s], recorded[1][s]) for s in shared)

    replays = [_Replay(e, r) for e, r in zip(experiments, recorded, strict=True)]
    compared = _comparable(*replays)
    order = forward_names(experiments[0], *experiments[0].strategy.params_of(replays[0].state))
    if compared == "state":
        order = [".params" + name for name in order]
    steps = min(config.steps for config in configs)
    found = None
    for number in range(steps + 1):
        for replay in replays if number else ():
            replay.take(number)
        if found is None and compared != "nothing":
            trees = [r.state if compared == "state" else r.params() for r in replays]
            found = apart(number, trees[0], trees[1], order)
    return Difference(
        config={k: (v, second[k]) for k, v in first.items() if second[k] != v},
        recorded=next((row for row in rows if row), None),
        leaf=found,
        steps=steps,
        replayed=(replays[0].outcome, replays[1].outcome),
        compared=compared,
    )


class _Replay:
    """One run, taken again step by step."""

    def __init__(self, experiment: Experiment, recorded: dict[int, dict[str, Any]]) -> None:
        self.experiment, self.recorded = experiment, recorded
        self.outcome: tuple[int, Row | None] = (0, None)
        self.state, _ = start(experiment, None)
        self.step = jitted_step(experiment)
        self.sums = jax.tree.structure(step_shapes(experiment)[1])

    def take(self, number: int) -> None:
        """One step; its metrics are held against the recorded ones."""
        config, strategy = self.experiment.config, self.experiment.strategy
        batch = self.experiment.task.batch(number - 1, "train", config.seed)
        batch = self.experiment.runtime.put(batch, self.experiment.mesh, strategy.batch)
        self.state, local = self.step(self.state, batch, step_key(config.seed, number))
        if "loss" in self.recorded.get(number, {}):
            rows, wrong = self.outcome
            here = row_difference(number, self.recorded[number], means(local, self.sums))
            self.outcome = (rows + 1, wrong or here)

    def params(self) -> Any:
        return self.experiment.strategy.params_of(self.state)[0]


def row_difference(step: int, one: dict[str, Any], two: dict[str, Any]) -> Row | None:
    """The metrics that both rows have and in which they differ; NaN equals NaN."""
    shared = [name for name in one if name in two]
    differ = {n: (one[n], two[n]) for n in shared if repr(one[n]) != repr(two[n])}
    return Row(step, differ) if differ else None


def forward_names(experiment: Experiment, params: Any, stats: Any) -> list[str]:
    """Names of the parameters' leaves in the order in which the forward pass first reads them."""
    model, batch = experiment.model, batch_shapes(experiment, 1)
    program = jax.make_jaxpr(
        lambda p, x: assembly.forward(model, p, stats, x, Context())
    )(params, batch["inputs"])  # fmt: skip
    read: dict[Any, int] = {}
    for index, equation in enumerate(program.eqns):
        for variable in equation.invars:
            if not isinstance(variable, Literal):
                read.setdefault(variable, index)
    names = leaf_names(params)
    when = [read.get(v, len(program.eqns)) for v in program.jaxpr.invars[: len(names)]]
    return [names[i] for i in sorted(range(len(names)), key=lambda i: when[i])]


def _comparable(one: _Replay, two: _Replay) -> str:
    for word, trees in (
        ("state", (one.state, two.state)),
        ("params", (one.params(), two.params())),
    ):
        shapes = [
            [(n, x.shape, x.dtype) for n, x in zip(leaf_names(t), jax.tree.leaves(t), strict=True)]
            for t in trees
        ]
        if shapes[0] == shapes[1]:
            return word
    return "nothing"


def _metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """Recorded values by step; at the last step training and evaluation together."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    found: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found.setdefault(row["step"], {}).update(row)
        except (ValueError, TypeError, KeyError):
            if number < len(lines):  # the last line may be half: the run was killed
                raise ValueError(f"{path} is damaged at line {number}") from None
    return found


def as_json(found: Difference) -> dict[str, Any]:
    """The same as plain JSON values; numbers that are not finite become null."""

    def plain(value: Any) -> Any:
        if hasattr(value, "_asdict"):
            return {k: plain(v) for k, v in value._asdict().items()}
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    result: dict[str, Any] = plain(found)
    return result
