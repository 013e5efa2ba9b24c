"""Describe one component: rule, arguments, examples."""

from __future__ import annotations

from absl import flags

from jddl import catalog
from jddl.cli._flags import new_flags, parse


def run(argv: list[str]) -> int:
    """`jddl describe [SHELF] NAME`."""
    values = new_flags("describe", __doc__)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    rest = parse(values, argv)
    if len(rest) not in (1, 2):
        raise ValueError(
            "say what to describe: jddl describe topk, or jddl describe compressors topk"
        )
    name = rest[-1]
    holders = [s for s in catalog.shelves() if name in catalog.names(s)]
    if len(rest) == 1 and not holders:
        catalog_names = {n for s in catalog.shelves() for n in catalog.names(s)}
        raise ValueError(
            f"unknown component {name!r}; " + catalog.alternatives(name, catalog_names)
        )
    component = catalog.describe(rest[0] if len(rest) == 2 else holders[0], name)
    if values.json:
        import json

        print(json.dumps({
            "shelf": component.shelf, "name": component.name, "doc": component.doc,
            "parameters": [str(p) for p in component.parameters],
            "examples": component.examples,
        }, indent=1))  # fmt: skip
        return 0
    print(f"{component.shelf}/{component.signature}\n\n{component.doc or component.summary}\n")
    for parameter in component.parameters:
        if parameter.shelf:
            print(f"{parameter.name}: one of {', '.join(catalog.names(parameter.shelf))}")
    for example in component.examples:
        print(f"example: {example}")
    return 0
