"""A transformer's training step against one written by hand, and beside PyTorch's.

The model, batch and optimiser of configs/lm.py on one device, without clipping. PyTorch is no
dependency: where no Python on the path can import torch, its row is left out, which is said.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import jax
import numpy as np

import jddl
from benchmarks import hand_transformer
from benchmarks._pairs import Effort, Question, answer
from jddl.loop import jitted_step
from jddl.mesh import P
from jddl.trees import step_key

LIMIT = 1.1
STEPS = 3  # that are compared before anything is timed
PYTHONS = (sys.executable, "/usr/bin/python3", "python3")


def rows(quick: bool) -> list[dict[str, Any]]:
    shape = hand_transformer.SMALL if quick else hand_transformer.SHAPE
    experiment = jddl.validate(shape.config())
    params, _ = experiment.model.init(jax.random.key(0))
    batch = experiment.task.batch(0, "train", 0)
    ours, losses = _ours(experiment, params, batch)
    hand, by_hand = _hand(shape, params, batch)
    again, _ = _hand(shape, params, batch)
    np.testing.assert_allclose(losses, by_hand, rtol=1e-5)
    effort = Effort(3, 3) if quick else Effort(20, 400)
    name = "transformer step"
    found = answer([Question(f"{name}, ours / hand-written", LIMIT)], ours, hand, again, effort)
    python = _with_torch()
    if python is None:
        print("  no Python here can import torch (Debian: python3-torch): its row is left out")
        return found
    with hand_transformer.Torch(python, shape, params, batch) as torch:
        np.testing.assert_allclose([torch.step() for _ in range(STEPS)], losses, rtol=1e-4)
        question = Question(f"{name}, ours / PyTorch {torch.version}", None)
        return found + answer([question], ours, torch.step, torch.step, effort)


def _ours(experiment: Any, params: Any, batch: Any) -> tuple[Any, list[float]]:
    """(a call that takes one step, losses of the first ones)."""
    put, mesh = experiment.runtime.put, experiment.mesh
    fresh = lambda tree: put(jax.tree.map(np.array, tree), mesh, P())  # noqa: E731
    state = fresh(experiment.strategy.init(params, {}))
    step, rows = jitted_step(experiment), put(batch, mesh, P("data"))
    number = 0

    def call() -> Any:
        nonlocal state, number
        number += 1
        state, sums = step(state, rows, step_key(0, number))
        return state, sums

    weight = batch["labels"].size
    losses = [float(np.asarray(call()[1])[0, -2]) / weight for _ in range(STEPS)]
    return call, losses


def _hand(shape: Any, params: Any, batch: Any) -> tuple[Any, list[float]]:
    step = hand_transformer.step(shape)
    params = jax.tree.map(jax.numpy.array, params)
    opt = hand_transformer.optimizer().init(params)

    def call() -> Any:
        nonlocal params, opt
        params, opt, loss = step(params, opt, batch)
        return params, opt, loss

    return call, [float(call()[2]) for _ in range(STEPS)]


def _with_torch() -> str | None:
    for python in PYTHONS:
        path = shutil.which(python)
        if (
            path
            and not subprocess.run([path, "-c", "import torch"], capture_output=True).returncode
        ):
            return path
    return None
