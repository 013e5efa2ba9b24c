"""Text files of the user's own, byte by byte."""

from __future__ import annotations

import glob as globs
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from jddl.records import Task
from jddl.tasks._bytes_text import Corpus, corpus, next_byte

EXAMPLES = ("text(glob='docs/*.md', length=32)",)
SHARE = 20  # one part in so many of each file for validation, and one for the test


def text(batch_size: int, glob: str, length: int = 128, held_out: int = 256) -> Task:
    """Predict the next byte of the files that a pattern names.

    Files sorted by path, whatever their encoding, each followed by a zero byte. The last tenth of
    every file is held out: its first half is validation, its second the test. So one file is
    enough, and every file is in each part; text that repeats itself is then seen in both.

    A batch is {'inputs': i32[b, length], 'labels': i32[b, length]}, labels one byte ahead. Loss:
    cross-entropy over 256 bytes in nats a byte. The summary states the corpus' SHA-256.

    Args:
      batch_size: windows in a global training batch (the run's `batch_size`).
      glob: a pattern such as 'docs/*.md', below the working directory unless it is absolute;
        '**' is any depth of folders, '~' the home folder.
      length: bytes a window predicts.
      held_out: at most so many windows of validation, and of test, spread evenly.

    Raises:
      ValueError: no file matches, or one cannot be read; the text is too short for the length.
    """
    pattern = str(Path(glob).expanduser())
    files = [p for p in sorted(globs.glob(pattern, recursive=True)) if Path(p).is_file()]
    if not files:
        raise ValueError(f"no file matches glob={glob!r} (working directory: {Path.cwd()})")
    seen = tuple((p, Path(p).stat().st_mtime_ns, Path(p).stat().st_size) for p in files)
    return next_byte(_corpus(seen), batch_size, length, held_out)


@lru_cache(maxsize=4)
def _corpus(files: tuple[tuple[str, int, int], ...]) -> Corpus:
    """Read once while times and sizes stay as they are."""

    def parts() -> Iterator[dict[str, bytes]]:
        for name, _, _ in files:
            try:
                whole = Path(name).read_bytes()
            except OSError as error:
                raise ValueError(f"{name}: {error.strerror}") from None
            cut = len(whole) // SHARE
            first, last = len(whole) - 2 * cut, len(whole) - cut
            yield {"train": whole[:first], "validation": whole[first:last], "test": whole[last:]}

    return corpus(parts())
