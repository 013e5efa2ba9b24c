"""The source of Python's standard library, byte by byte: text that every machine has."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jddl.records import Task
from jddl.tasks._bytes_text import Corpus, corpus, next_byte

EXAMPLES = ("python_source(length=32)",)

# Test suites, tables (encodings, pydoc_data), idlelib and what distributions add are left out.
PACKAGES = """
asyncio collections concurrent ctypes curses dbm email html http importlib json logging
multiprocessing re sqlite3 tomllib unittest urllib wsgiref xml xmlrpc zoneinfo
""".split()
MODULES = """
_collections_abc _pydecimal _pydatetime _pyio _strptime abc argparse ast base64 bdb bisect bz2
calendar cmd code codecs codeop colorsys compileall configparser contextlib contextvars copy
copyreg cProfile csv dataclasses datetime decimal difflib dis doctest enum filecmp fileinput
fnmatch fractions ftplib functools genericpath getopt getpass gettext glob graphlib gzip hashlib
heapq hmac imaplib inspect io ipaddress keyword linecache locale lzma mailbox mimetypes
modulefinder netrc ntpath nturl2path numbers opcode operator optparse os pathlib pdb pickle
pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats pty py_compile pyclbr
pydoc queue quopri random reprlib rlcompleter runpy sched secrets selectors shelve shlex shutil
smtplib socket socketserver ssl stat statistics string stringprep struct subprocess symtable
sysconfig tabnanny tarfile tempfile textwrap threading timeit token tokenize trace traceback
tracemalloc tty turtle types typing uuid warnings wave weakref webbrowser zipapp zipfile zipimport
""".split()
LEFT_OUT = {"test", "tests", "__pycache__"}
EVERY = 20  # of as many files one is for validation and one for the test


def python_source(batch_size: int, length: int = 128, held_out: int = 256) -> Task:
    """Predict the next byte of the installed Python's own standard library, no download.

    The corpus: the .py files of a fixed list of packages and modules, without their tests, sorted
    by path, each followed by a zero byte. What a version of Python lacks is skipped, so runs
    compare where their summaries state the same `corpus_sha256`. Whole files are held out: of the
    sorted files those at places 9 and 19 of each twenty are validation and test.

    A batch is {'inputs': i32[b, length], 'labels': i32[b, length]}, labels one byte ahead. Loss:
    cross-entropy over 256 bytes in nats a byte; divided by ln 2 it is bits a byte. In training
    an epoch's windows do not overlap, and its order and offset are drawn from (seed, epoch).

    Args:
      batch_size: windows in a global training batch (the run's `batch_size`).
      length: bytes a window predicts.
      held_out: at most so many windows of validation, and of test, spread evenly.

    Raises:
      ValueError: the installation has no source files; windows longer than the held-out text.
    """
    return next_byte(_corpus(), batch_size, length, held_out)


def _files(root: Path) -> list[Path]:
    """Sorted by the path below `root`, written with slashes."""
    found = [root / f"{name}.py" for name in MODULES]
    found += [p for name in (*PACKAGES, *MODULES) for p in (root / name).rglob("*.py")]
    kept = {p for p in found if p.is_file() and not LEFT_OUT & set(p.relative_to(root).parts)}
    return sorted(kept, key=lambda p: p.relative_to(root).as_posix())


@cache
def _corpus() -> Corpus:
    root = Path(sysconfig.get_path("stdlib"))
    files = _files(root)
    if len(files) < EVERY:
        raise ValueError(
            f"{root} holds {len(files)} source files of the standard library, too few for a "
            "corpus; text(glob='...') takes files of your own"
        )

    def parts() -> Iterator[dict[str, bytes]]:
        held = {EVERY // 2 - 1: "validation", EVERY - 1: "test"}
        for index, path in enumerate(files):
            yield {held.get(index % EVERY, "train"): path.read_bytes()}

    return corpus(parts())
