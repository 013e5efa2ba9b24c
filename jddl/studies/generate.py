"""Text from a trained language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jddl import assembly, checkpoints
from jddl.experiment import validate
from jddl.loop import start
from jddl.records import Context

BYTES = 256  # outputs of a byte-level task


def generate(
    run: str | Path,
    prompt: str,
    length: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
    allow_import: tuple[str, ...] = (),
) -> bytes:
    """`length` bytes that continue the prompt, drawn one by one from a run's last checkpoint.

    Each byte is drawn from softmax(logits / temperature) of the model at the last position; it sees
    the last so many bytes as a training example has. The same arguments give the same bytes on one
    machine. A shorter text is followed by zeros, which a causal model does not see; experts with a
    capacity do where tokens have second choices.

    Args:
      run: the folder of a run with a byte-level task (finished or not) that saved a checkpoint.
      prompt: encoded as UTF-8 (bytes that are none stay as they are); not empty.
      length: bytes to draw.
      temperature: 0 takes the most probable byte.
      seed: of the draws.
      allow_import: packages from which dotted names in the run's config may be imported.

    Raises:
      ValueError: no run, no checkpoint, a task that is not text, an empty prompt.
    """
    if not prompt or length < 1 or not 0 <= temperature < float("inf"):
        raise ValueError(
            "the prompt is not empty, length at least 1, temperature finite and not negative"
        )
    path = Path(run) / "config.json"
    if not path.is_file():
        raise ValueError(f"{run} holds no run (no config.json)")
    config = json.loads(path.read_text()) | {"runtime": "vmap"}  # needs no devices
    experiment = validate(config, allow_import)
    if experiment.task.facts.get("bytes_per_token") != 1.0 or experiment.task.outputs != BYTES:
        raise ValueError(f"{run}: the task {config['task']} is not text in bytes")
    saved = checkpoints.load(run)
    if saved is None:
        raise ValueError(f"{run} holds no checkpoint: train it with save_every > 0")
    state, _ = start(experiment, saved)
    params, stats = experiment.strategy.params_of(state)
    window = experiment.task.inputs[0]

    @jax.jit
    def logits_at(tokens: Any, last: Any) -> Any:
        ctx = Context()
        return assembly.forward(experiment.model, params, stats, tokens[None], ctx)[0][0, last]

    rng, text = np.random.default_rng(seed), [*prompt.encode(errors="surrogateescape")]
    for _ in range(length):
        seen = text[-window:]
        tokens = np.zeros(window, np.int32)
        tokens[: len(seen)] = seen
        text.append(_draw(np.asarray(logits_at(tokens, len(seen) - 1)), temperature, rng))
    return bytes(text[-length:])


def _draw(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    if temperature == 0:
        return int(np.argmax(logits))
    wide = logits.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf, chance 0
        chances = np.exp((wide - wide.max()) / temperature)
    return int(rng.choice(len(chances), p=chances / chances.sum()))
