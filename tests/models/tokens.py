"""A task of random tokens: the next one is the last one plus 1, modulo the vocabulary."""

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy

VOCABULARY, LENGTH = 7, 5


def tokens(batch_size: int) -> Task:
    def batch(step, split, seed):
        first = np.random.default_rng([seed, step]).integers(VOCABULARY, size=(batch_size, 1))
        whole = ((first + np.arange(LENGTH + 1)) % VOCABULARY).astype(np.int32)
        return {"inputs": whole[:, :-1], "labels": whole[:, 1:]}

    batches = {"validation": 1, "test": 1}
    return Task(batch, cross_entropy, accuracy, batches, (LENGTH,), VOCABULARY)
