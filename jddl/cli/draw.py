"""Draw a collective schedule as a rank x round diagram."""

from __future__ import annotations

from pathlib import Path

from absl import flags

from jddl.cli._flags import new_flags, parse


def run(argv: list[str]) -> int:
    """`jddl draw collective ring --n=8 --out=ring.png`."""
    values = new_flags("draw", __doc__)
    flags.DEFINE_integer("n", 8, "Number of ranks.", lower_bound=1, flag_values=values)
    flags.DEFINE_string("out", None, "The picture (.png or .svg).", flag_values=values)
    rest = parse(values, argv)
    if len(rest) != 2 or rest[0] != "collective":
        raise ValueError("say what to draw: jddl draw collective ring --n=8 --out=ring.png")
    out = values.out or f"{rest[1]}.png"
    if Path(out).suffix not in (".png", ".svg"):
        raise ValueError(f"--out={out} is neither .png nor .svg")
    from jddl import schedule

    schedule(rest[1], values.n).draw(out)
    print(out)
    return 0
