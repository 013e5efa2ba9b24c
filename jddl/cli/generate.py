"""Continue a text with a trained language model."""

from __future__ import annotations

from absl import flags

from jddl.cli._flags import new_flags, parse


def run(argv: list[str]) -> int:
    """`jddl generate --run=DIR --prompt='def '`: from the run's last checkpoint."""
    values = new_flags("generate", __doc__)
    flags.DEFINE_string("run", None, "The run's folder.", flag_values=values)
    flags.DEFINE_string("prompt", None, "The text to continue.", flag_values=values)
    flags.DEFINE_integer("bytes", 200, "How many to add.", lower_bound=1, flag_values=values)
    flags.DEFINE_float(
        "temperature", 0.8, "Of the draws; 0 takes the most probable byte.", lower_bound=0.0,
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_integer("seed", 0, "Of the draws.", lower_bound=0, flag_values=values)
    flags.DEFINE_multi_string(
        "allow_import", [], "Package from which the run's components may be imported.",
        flag_values=values,
    )  # fmt: skip
    rest = parse(values, argv)
    if rest:
        raise ValueError(f"generate takes no argument {rest[0]!r}; flags begin with --")
    if not values.run or not values.prompt:
        raise ValueError("say --run=DIR and --prompt=TEXT, for example --prompt='def '")
    from jddl.studies.generate import generate

    more = generate(
        values.run, values.prompt, values.bytes, values.temperature, values.seed,
        tuple(values.allow_import),
    )  # fmt: skip
    print(values.prompt + more.decode(errors="replace"))
    return 0
