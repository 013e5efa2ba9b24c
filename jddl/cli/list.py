"""List the shelves and their components (reads sources, imports nothing)."""

from __future__ import annotations

import sys

from jddl import catalog


def run(argv: list[str]) -> int:
    """`jddl list [SHELF] [--shelf=DIR] [--json]`; hand-parsed so that it starts in no time."""
    as_json, wanted = False, []
    for argument in argv:
        if argument.startswith("--shelf="):
            catalog.add_shelf(argument.split("=", 1)[1])
        elif argument == "--json":
            as_json = True
        elif argument in ("--help", "-h"):
            print(f"{__doc__}\n\njddl list [SHELF] [--shelf=DIR] [--json]")
            return 0
        elif argument.startswith("-"):
            raise ValueError(f"unknown flag {argument!r}; there are: --shelf=DIR, --json, --help")
        else:
            wanted.append(argument)
    table = {
        shelf: {name: catalog.describe(shelf, name).summary for name in catalog.names(shelf)}
        for shelf in wanted or catalog.shelves()
    }
    if as_json:
        import json

        json.dump(table, sys.stdout, indent=1)
        print()
        return 0
    for shelf, members in table.items():
        print(shelf)
        for name, summary in members.items():
            print(f"  {name:28} {summary}")
    return 0
