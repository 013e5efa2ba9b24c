"""A schedule as a picture: ranks down, rounds across, one arrow a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jddl.collectives._schedule import Schedule


def draw(schedule: Schedule, path: str) -> None:
    """Write the rank x round diagram; the format follows the suffix (.png, .svg).

    Solid arrows add, dashed ones copy; the label is the chunk (left out where a message carries
    the whole vector or the picture would be unreadable).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = [(r, lane) for r, group in enumerate(schedule.rounds) for lane in group]
    figure = Figure(figsize=(2 + 0.9 * max(len(lanes), 1), 1.2 + 0.5 * schedule.n), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = ("#0072B2", "#D55E00")
    labelled = schedule.chunks > 1 and len(schedule.messages) <= 400
    for column, (_, lane) in enumerate(lanes):
        for message in lane:
            start, end = (column + 0.12, message.src), (column + 0.88, message.dst)
            add = message.op == "add"
            style = {"arrowstyle": "->", "color": colours[not add], "linewidth": 1.1,
                     "linestyle": "-" if add else "--"}  # fmt: skip
            axes.annotate("", end, start, arrowprops=style)
            if labelled:
                chunks = ",".join(map(str, message.chunks))
                axes.text(start[0] - 0.02, start[1] - 0.08, chunks, fontsize=7, ha="right")
    axes.set_yticks(range(schedule.n), [f"rank {r}" for r in range(schedule.n)])
    axes.set_xticks([c + 0.5 for c in range(len(lanes))], [str(r) for r, _ in lanes])
    axes.set(xlim=(-0.2, max(len(lanes), 1)), ylim=(schedule.n - 0.5, -0.6), xlabel="round")
    axes.set_title(
        f"{schedule.name}, {schedule.n} ranks, {schedule.chunks} chunks: solid adds, dashed copies"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
