"""Language modelling on bytes: what the tasks over a corpus of files share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jddl.records import Task
from jddl.tasks._classify import accuracy, cross_entropy, shuffled

SYMBOLS = 256
END = b"\0"  # after each file: no text holds it
ROWS = 64  # windows in a batch of held-out text


class Corpus(NamedTuple):
    """splits: 'train', 'validation', 'test' as u8[bytes]; sha256: of all files in order."""

    splits: dict[str, np.ndarray]
    sha256: str
    files: int
    size: int


def corpus(parts: Iterable[dict[str, bytes]]) -> Corpus:
    """One corpus from {split: bytes} of each file, in the order in which they come.

    The SHA-256 is that of the files' bytes, each followed by a zero byte, whatever the split.
    """
    pieces: dict[str, list[bytes]] = {"train": [], "validation": [], "test": []}
    digest, files, size = hashlib.sha256(), 0, 0
    for part in parts:
        whole = b"".join(part[split] for split in pieces if split in part) + END
        digest.update(whole)
        files, size = files + 1, size + len(whole)
        for split, text in part.items():
            if text:
                pieces[split] += [text, END]
    splits = {name: np.frombuffer(b"".join(p), np.uint8) for name, p in pieces.items()}
    return Corpus(splits, digest.hexdigest(), files, size)


def next_byte(found: Corpus, batch_size: int, length: int, held_out: int) -> Task:
    """Predict each next byte: windows of length + 1 bytes, labels are the inputs shifted by one.

    Training: an epoch cuts the text into windows that do not overlap, from an offset below `length`
    that is drawn from (seed, epoch), and takes them in an order drawn from the same; so windows
    are a pure function of (step, seed). Held out: at most `held_out` windows, evenly spread over
    the split, always the same, in batches of 64.

    Raises:
      ValueError: a split is shorter than one window.
    """
    if length < 1 or held_out < 1 or batch_size < 1:
        raise ValueError(
            f"length, held_out and batch_size are at least 1, not {length}, {held_out} "
            f"and {batch_size}"
        )
    for name, text in found.splits.items():
        if len(text) < 2 * length:
            raise ValueError(
                f"the {name} part of the text has {len(text)} bytes, too few for windows of "
                f"length={length}: take a smaller length or more text"
            )
    windows = {name: (len(text) - 1) // length for name, text in found.splits.items()}
    windows["train"] = (len(found.splits["train"]) - length) // length  # room for any offset
    kept = {name: min(held_out, windows[name]) for name in ("validation", "test")}

    def starts(step: int, split: str, seed: int) -> np.ndarray:
        if split != "train":
            spread = np.arange(kept[split]) * windows[split] // kept[split]
            return spread[ROWS * step : ROWS * (step + 1)] * length
        size = windows["train"]
        chosen = shuffled(size, batch_size, step, seed)
        epochs = np.arange(step * batch_size, (step + 1) * batch_size) // size
        first, last = int(epochs[0]), int(epochs[-1])
        offsets = [
            np.random.default_rng([seed, e, 1]).integers(length) for e in range(first, last + 1)
        ]
        return chosen * length + np.array(offsets)[epochs - first]

    def batch(step: int, split: str, seed: int) -> dict[str, Any]:
        first = starts(step, split, seed)
        rows = found.splits[split][first[:, None] + np.arange(length + 1)].astype(np.int32)
        return {"inputs": rows[:, :-1], "labels": rows[:, 1:]}

    facts = {
        "corpus_sha256": found.sha256,
        "corpus_bytes": found.size,
        "corpus_files": found.files,
        "bytes_per_token": 1.0,
        "tokens_per_example": length,
        "vocabulary": SYMBOLS,
    }
    batches = {name: -(-count // ROWS) for name, count in kept.items()}
    return Task(batch, cross_entropy, accuracy, batches, (length,), SYMBOLS, facts)
