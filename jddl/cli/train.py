"""Train what a config describes and write a run folder."""

from __future__ import annotations

import sys
import time
from typing import Any

from absl import flags

from jddl.cli._flags import new_flags, parse_with_config


def run(argv: list[str]) -> int:
    """`jddl train --config=FILE [--config.FIELD=VALUE ...] --workdir=DIR`."""
    values = new_flags("train", __doc__)
    flags.DEFINE_string(
        "workdir", None, "The run's folder; an unfinished run there goes on.", flag_values=values
    )
    flags.DEFINE_string(
        "resume_from", None, "Start from another run's last checkpoint.", flag_values=values
    )
    flags.DEFINE_string(
        "dump_gradients", "", "Steps whose gradients to keep in WORKDIR/gradients, as 10,20.",
        flag_values=values,
    )  # fmt: skip
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"train takes no argument {rest[0]!r}; flags begin with --")
    if not values.workdir:
        raise ValueError("say --workdir=DIR: where the run's files go")
    from jddl.gradients import parse_steps
    from jddl.loop import train

    steps = parse_steps(values.dump_gradients)

    with Progress() as progress:
        result = train(config, values.workdir, allow, progress, values.resume_from, steps)
    for name in sorted(result.summary):
        print(f"{name:22} {result.summary[name]}")
    print(f"run: {values.workdir}")
    return 0


class Progress:
    """A bar with loss, examples/s and time left on a terminal; plain lines otherwise."""

    def __init__(self, label: str = "") -> None:
        self.label, self.last, self.bar = label, 0.0, None
        self.task: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self.bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, row: dict[str, Any]) -> None:
        """Show one logged row."""
        rate = row["step"] * row["batch_size"] / max(row["seconds"], 1e-9)
        left = row["seconds"] / row["step"] * (row["steps"] - row["step"])
        note = f"loss {row['loss']:.4f}  {rate:,.0f} examples/s"
        if self.bar:
            if self.task is None:
                self.task = self.bar.add_task(self.label or "train", total=row["steps"], note="")
            self.bar.update(self.task, completed=row["step"], note=note)
        elif time.monotonic() - self.last > 5 or row["step"] == row["steps"]:
            self.last = time.monotonic()
            step = f"step {row['step']}/{row['steps']}"
            print(f"{self.label} {step}  {note}  {left:.0f} s left".strip(), file=sys.stderr)
