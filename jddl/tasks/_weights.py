"""Weights of examples: padding, masks, and sums that respect them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jddl.records import Task


def weighted(values: Any, batch: Any) -> tuple[Any, Any]:
    """(sum of weight * value, sum of weights) of values[b, ...], one or more an example.

    Without batch['weight'] the weight is the plain number of values: it is the same on every
    worker, and nothing travels for it. With weights [b] each value of an example weighs the same.
    """
    if "weight" not in batch:
        return values.sum(), float(values.size)
    weight = batch["weight"].astype(values.dtype)
    if weight.ndim < values.ndim:  # one number an example, several values: one a token
        weight = weight.reshape(weight.shape + (1,) * (values.ndim - weight.ndim))
        weight = jnp.broadcast_to(weight, values.shape)
    return jnp.sum(values * weight), jnp.sum(weight)


def pad(batch: dict[str, Any], parts: int) -> dict[str, Any]:
    """Rows up to a multiple of `parts`: copies of the first row that weigh 0.

    A batch that divides is returned as it is.
    """
    size = len(jax.tree.leaves(batch)[0])
    missing = -size % parts
    if not missing:
        return batch
    rows = np.concatenate([np.arange(size), np.zeros(missing, int)])
    weight = np.asarray(batch.get("weight", np.ones(size, np.float32)), np.float32)
    padded = {name: jax.tree.map(lambda x: np.asarray(x)[rows], x) for name, x in batch.items()}
    return padded | {"weight": np.concatenate([weight, np.zeros(missing, np.float32)])}


def padded(task: Task, parts: int) -> Task:
    """The task with every training batch padded to a multiple of `parts`."""

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        rows = task.batch(step, split, seed)
        return pad(rows, parts) if split == "train" else rows

    return task._replace(batch=batch)
