"""The tables of `jddl bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

COLLECTIVES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "algorithm": ("algorithm", str),
    "bytes": ("bytes", str),
    "elements": ("elements", str),
    "dtype": ("dtype", str),
    "op": ("op", str),
    "rounds": ("rounds", str),
    "time": ("time us", "{:.1f}".format),
    "algbw": ("algbw GB/s", "{:.3g}".format),
    "busbw": ("busbw GB/s", "{:.3g}".format),
    "wrong": ("#wrong", str),
}
COMPRESSORS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "compressor": ("compressor", str),
    "bytes": ("bytes", str),
    "payload_bytes": ("payload B", str),
    "ratio": ("ratio", "{:.2f}".format),
    "error_normal": ("error normal", "{:.2e}".format),
    "error_heavy": ("error heavy", "{:.2e}".format),
    "compress_gbps": ("compress GB/s", "{:.3g}".format),
    "compress_vs_copy": ("/ copy", "{:.3g}".format),
    "decompress_gbps": ("decompress GB/s", "{:.3g}".format),
    "decompress_vs_copy": ("/ copy", "{:.3g}".format),
}
GRADIENTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    {"error_normal": "error_gradient", "error_heavy": "error_mean"}.get(name, name): (
        {"error_normal": "error gradient", "error_heavy": "error mean"}.get(name, column[0]),
        column[1],
    )
    for name, column in COMPRESSORS.items()
}


def render(rows: Sequence[dict[str, Any]], columns: dict[str, tuple[str, Any]]) -> str:
    """A plain aligned table: the first column to the left, the others to the right.

    A value with an interval beside it (NAME_vs_copy and NAME_interval) shows both.
    """
    lines = [[title for title, _ in columns.values()]]
    for row in rows:
        cells = []
        for name, (_, text) in columns.items():
            between = row.get(name.replace("_vs_copy", "_interval")) if "_vs_copy" in name else None
            cell = text(row[name])
            cells.append(f"{cell} [{text(between[0])}, {text(between[1])}]" if between else cell)
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    shown = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])
