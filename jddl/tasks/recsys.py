"""Clicks on rare things: ids whose embedding table is large and its gradient sparse."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy

EXAMPLES = ("recsys(fields=3, vocabulary=60)", "recsys(exponent=0.0, vocabulary=80)")
HELD_OUT = 4096
SPLITS = {"train": 0, "validation": 1, "test": 2}


def recsys(
    batch_size: int,
    vocabulary: int = 100_000,
    fields: int = 8,
    exponent: float = 1.1,
    spread: float = 1.0,
) -> Task:
    """Synthetic click logs: `fields` ids a row, Zipf-distributed over one vocabulary.

    The vocabulary is cut into `fields` equal ranges. Field f of a row is the id f * size + r, size
    = vocabulary / fields, with rank r drawn with probability proportional to (r + 1)^-exponent. The
    label is 1 (a click) with probability sigmoid(sum_f w[id_f]), w[v] ~ N(0, spread^2 / fields):
    planted, so the best loss is known. w is fixed; rows are new at each step, drawn from
    (seed, step). With a table of embeddings the gradient is zero but for the ids of the batch.

    A batch is {'inputs': i32[b, fields], 'labels': i32[b]}. Loss: cross-entropy of two classes.
    The vocabulary is a fact of the task, given to models that ask for it (`embedding_bag`).

    Args:
      batch_size: rows in a global training batch (the run's `batch_size`).
      vocabulary: number of ids, a multiple of fields.
      fields: ids in a row, each from its own range.
      exponent: of Zipf's law; 0 is uniform.
      spread: standard deviation of the planted logit, where all ids of a row are rare.

    Raises:
      ValueError: arguments out of range.

    Reference: the setting of Naumov et al., "Deep learning recommendation model for
    personalization and recommendation systems", 2019. Differences: categorical features only, one
    id a field, an additive planted model.
    """
    if fields < 1 or vocabulary < 2 * fields or vocabulary % fields:
        raise ValueError(
            f"vocabulary is a multiple of fields, at least 2 ids a field, not {vocabulary} for "
            f"{fields} fields"
        )
    if exponent < 0 or spread < 0:
        raise ValueError(f"exponent and spread are at least 0, not {exponent} and {spread}")
    size = vocabulary // fields

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        train = split == "train"
        # Held-out rows are the same for all seeds.
        rng = np.random.default_rng([SPLITS[split], seed if train else 0, step])
        rows = batch_size if train else HELD_OUT
        edges, planted = _law(size, exponent), _planted(vocabulary, fields, spread)
        ranks = np.searchsorted(edges, rng.random((rows, fields)), side="right")
        ids = np.arange(fields) * size + ranks
        clicks = rng.random(rows) < 1 / (1 + np.exp(-planted[ids].sum(axis=1)))
        return {"inputs": ids.astype(np.int32), "labels": clicks.astype(np.int32)}

    facts = {"vocabulary": vocabulary}
    batches = {"validation": 1, "test": 1}
    return Task(batch, cross_entropy, accuracy, batches, (fields,), 2, facts)


@lru_cache(maxsize=8)
def _law(size: int, exponent: float) -> np.ndarray:
    """f64[size - 1]: upper edges of the ranks' shares of [0, 1); the last rank has the rest."""
    share = np.arange(1.0, size + 1) ** -exponent
    return (np.cumsum(share) / share.sum())[:-1]


@lru_cache(maxsize=8)
def _planted(vocabulary: int, fields: int, spread: float) -> np.ndarray:
    """f64[vocabulary]: the planted weights."""
    rng = np.random.default_rng([3, vocabulary, fields])
    return spread / np.sqrt(fields) * rng.standard_normal(vocabulary)
