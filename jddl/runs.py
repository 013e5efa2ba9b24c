"""A run's folder: what is written, and how it is read back.

config.json (resolved; runs again), environment.json, metrics.jsonl (deterministic values only),
timings.jsonl (wall times), summary.json (written last: a run without it is unfinished).
"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple


class Run(NamedTuple):
    """A finished run as read from its folder."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]


class Writer:
    """Writes a run's folder line by line; with workdir None it only remembers.

    keep: bytes of metrics.jsonl that a checkpoint vouches for; what was written after it goes.
    """

    def __init__(self, workdir: str | Path | None, config: dict[str, Any], keep: int = 0) -> None:
        self.path = None if workdir is None else Path(workdir)
        self.metrics: list[dict[str, Any]] = []
        if self.path is None:
            return
        check_free(self.path, config)
        self.path.mkdir(parents=True, exist_ok=True)
        kept = (self.path / "metrics.jsonl").read_bytes()[:keep] if keep else b""
        self.metrics = [json.loads(line) for line in kept.splitlines()]
        write_bytes(self.path / "metrics.jsonl", kept)
        if not keep:
            (self.path / "timings.jsonl").unlink(missing_ok=True)
        write_json(self.path / "config.json", config)
        write_json(self.path / "environment.json", environment())

    @property
    def metrics_bytes(self) -> int:
        """How long metrics.jsonl is now."""
        return 0 if self.path is None else (self.path / "metrics.jsonl").stat().st_size

    def metric(self, row: dict[str, Any]) -> None:
        """Append a deterministic row to metrics.jsonl."""
        self.metrics.append(row)
        self._append("metrics.jsonl", row)

    def timing(self, row: dict[str, Any]) -> None:
        """Append a row of wall times to timings.jsonl."""
        self._append("timings.jsonl", row)

    def summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json: the run is finished."""
        if self.path is not None:
            write_json(self.path / "summary.json", summary)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        if self.path is not None:
            with (self.path / name).open("a") as file:
                file.write(json.dumps(row, sort_keys=True) + "\n")


def check_free(path: Path, config: dict[str, Any]) -> None:
    """Refuse a workdir that holds anything but an unfinished attempt at the same config.

    Raises:
      ValueError: in one line; nothing is overwritten.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"workdir {path} is a file")
    if not path.is_dir() or not any(path.iterdir()):
        return
    try:
        before = _object(path / "config.json")
    except ValueError:
        raise ValueError(f"workdir {path} is not empty and holds no run: choose another") from None
    changed = [k for k in config if before.get(k) != config[k]]
    if changed:
        raise ValueError(
            f"workdir {path} holds another run ({', '.join(changed)} differ): choose another"
        )
    if (path / "summary.json").exists():
        raise ValueError(f"workdir {path} holds this run, finished: choose another or delete it")


def read_run(path: str | Path) -> Run:
    """Read a finished run.

    Raises:
      ValueError: no run there, or an unfinished one.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{path} holds no run (no config.json)")
    if not (folder / "summary.json").is_file():
        raise ValueError(f"{path} holds an unfinished run (no summary.json)")
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / 'metrics.jsonl'} is damaged: {error}") from None
    summary = _object(folder / "summary.json", ("final_loss", "steps", "sent_bytes", "seed"))
    return Run(folder, _object(folder / "config.json"), summary, rows)


def _object(path: Path, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """A JSON object with at least these keys."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    missing = [k for k in keys if k not in found]
    if not isinstance(found, dict) or missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing) or 'an object'}")
    return found


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they can change a result."""
    import jax

    packages = ("jddl", "jax", "jaxlib", "flax", "optax", "chex", "numpy", "scikit-learn")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "versions": {p: _version(p) for p in packages},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
