"""The language model of configs/lm.py written by hand, in JAX and for a process with PyTorch."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE, DECAY = 0.001, 0.1
TORCH = Path(__file__).parent / "_torch_transformer.py"


class Shape(NamedTuple):
    """Llama style; one head of keys and values a group of heads."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    batch: int
    length: int

    def config(self) -> dict[str, Any]:
        """The same as a jddl config on one device."""
        return {
            "task": f"python_source(length={self.length})",
            "model": f"transformer(heads={self.heads}, hidden={self.hidden}, "
            f"kv_heads={self.kv_heads}, layers={self.layers}, preset='llama_debug', "
            f"width={self.width})",
            "mesh": "data=1",
            "optimizer": f"adamw(learning_rate={RATE}, weight_decay={DECAY})",
            "batch_size": self.batch,
        }


SHAPE = Shape(layers=4, width=160, heads=5, kv_heads=1, hidden=432, batch=8, length=128)
SMALL = Shape(layers=1, width=16, heads=2, kv_heads=1, hidden=16, batch=2, length=8)


def optimizer() -> optax.GradientTransformation:
    return optax.adamw(RATE, weight_decay=DECAY)


def _norm(x, scale):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def _rotate(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    return jnp.concatenate(
        [x[..., :half] * cos - x[..., half:] * sin, x[..., :half] * sin + x[..., half:] * cos], -1
    )


def step(shape):
    """A jitted (params, opt, batch) -> (params, opt, mean loss); params named as jddl's model's."""
    tx, size = optimizer(), shape.width // shape.heads

    def loss(params, batch):
        x = params["shared"]["embed"]["table"][batch["inputs"]]
        b, s, _ = x.shape
        mask = jnp.tril(jnp.ones((s, s), bool))
        for block in params["blocks"]:
            part = block["attention"]
            y = _norm(x, block["norm1"]["scale"])
            q = _rotate((y @ part["query"]["kernel"]).reshape(b, s, -1, size))
            k = _rotate((y @ part["key"]["kernel"]).reshape(b, s, -1, size))
            v = (y @ part["value"]["kernel"]).reshape(b, s, -1, size)
            k, v = (jnp.repeat(z, shape.heads // shape.kv_heads, axis=2) for z in (k, v))
            scores = jnp.einsum("bihd,bjhd->bhij", q, k) / size**0.5
            weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
            y = jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(b, s, -1)
            x = x + y @ part["output"]["kernel"]
            part, y = block["feed_forward"], _norm(x, block["norm2"]["scale"])
            gate = jax.nn.silu(y @ part["gate"]["kernel"])
            x = x + (gate * (y @ part["up"]["kernel"])) @ part["down"]["kernel"]
        head = params["shared"]["head"]
        logits = _norm(x, head["norm"]["scale"]) @ head["table"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()

    def update(params, opt, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt = tx.update(gradient, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return jax.jit(update, donate_argnums=(0, 1))


class Torch:
    """The same training in another process: each `step()` takes one and returns its loss."""

    def __init__(self, python: str, shape: Shape, params: Any, batch: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "start.npz"
        leaves = jax.tree_util.tree_leaves_with_path(params)
        arrays = {
            "/".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in at): np.asarray(x)
            for at, x in leaves
        }
        np.savez(path, **arrays, **{f"batch/{k}": np.asarray(v) for k, v in batch.items()})
        settings = json.dumps(shape._asdict() | {"rate": RATE, "decay": DECAY})
        self.process = subprocess.Popen(
            [python, str(TORCH), str(path), settings],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{TORCH.name} ended: see its error above")
        return line.strip()

    def step(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._read())

    def __enter__(self) -> Torch:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()
        self.folder.cleanup()
