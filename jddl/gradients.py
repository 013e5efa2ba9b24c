"""Dumps of real gradients: what each worker hands to the aggregator, for benches of compressors."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from jddl.experiment import Experiment, device_state
from jddl.mesh import Own
from jddl.trees import as_key

FOLDER = "gradients"


def parse_steps(text: str) -> tuple[int, ...]:
    """'10,20' -> (10, 20).

    Raises:
      ValueError: a step that is no whole number.
    """
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise ValueError(f"dump_gradients is a list of steps such as 10,20; {wrong[0]!r} is none")
    return tuple(int(word) for word in words)


def check_steps(wanted: Sequence[int], taken: int, steps: int, workdir: str | Path | None) -> None:
    """Refuse what could not be written; `taken`: steps that a checkpoint has behind it.

    Raises:
      ValueError: a step that the run does not take any more, no folder to write to.
    """
    outside = [step for step in wanted if not 1 <= step <= steps]
    if outside:
        raise ValueError(f"dump_gradients={outside[0]}: the run takes steps 1 to {steps}")
    if wanted and workdir is None:
        raise ValueError("dump_gradients needs a workdir: the gradients are files of the run")
    gone = [s for s in wanted if s <= taken and not file_of(workdir or "", s).is_file()]
    if gone:
        raise ValueError(f"dump_gradients={gone[0]}: the run goes on after step {taken}")


def file_of(workdir: str | Path, step: int) -> Path:
    """RUN/gradients/step_000010.npz."""
    return Path(workdir) / FOLDER / f"step_{step:06d}.npz"


def dumper(experiment: Experiment) -> Callable[[Path, Any, Any, Any], None]:
    """A function (file, state, batch, raw key) that writes every worker's gradient of one step.

    The file holds one array a leaf of the parameters, named by its path ('blocks.0.linear.kernel'),
    of shape [workers, ...] in the parameters' dtype: the gradient of the loss over the worker's own
    rows, scaled so that the mean over the workers is the gradient of the global mean. It is
    computed by a program of its own, so the training step is the same with and without a dump.

    Raises:
      ValueError: the method has no local gradients.
    """
    strategy, mesh = experiment.strategy, experiment.mesh
    local = strategy.gradients
    if local is None:
        raise ValueError("dump_gradients: this method hands no local gradients to an aggregator")
    layout = strategy.layout(device_state(experiment))
    own = Own(strategy.axes)
    spmd = experiment.runtime.spmd(
        lambda state, batch, raw: local(state, batch, as_key(raw)),
        mesh,
        (layout, strategy.batch, P()),
        own,
    )
    run = jax.jit(spmd)

    def dump(path: Path, state: Any, batch: Any, raw: Any) -> None:
        found = jax.tree_util.tree_leaves_with_path(jax.device_get(run(state, batch, raw)))
        named = {jax.tree_util.keystr(p, simple=True, separator="."): x for p, x in found}
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, **named)
        part.replace(path)

    return dump


def load(path: str | Path) -> dict[str, np.ndarray]:
    """{leaf: [workers, ...]} of a dump.

    Raises:
      ValueError: in one line, where the file is none.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except (OSError, EOFError, zipfile.BadZipFile, ValueError, AttributeError) as error:
        short = str(error).splitlines()[0]
        raise ValueError(f"{path} is no dump of gradients (RUN/gradients/*.npz): {short}") from None
    if not found or len({len(x) if x.ndim else 0 for x in found.values()}) != 1:
        raise ValueError(f"{path} is no dump of gradients: leaves are [workers, ...]")
    return found
