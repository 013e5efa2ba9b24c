"""Flags: a private set for each verb; `--config` and its overrides."""

from __future__ import annotations

import sys
from typing import Any

from absl import flags
from ml_collections import ConfigDict
from ml_collections.config_flags import config_flags

from jddl import catalog
from jddl.experiment import DEFAULTS, load_config


def new_flags(verb: str, doc: str | None) -> flags.FlagValues:
    """An empty private flag set with --help, --flagfile and --shelf."""
    values = flags.FlagValues()
    flags.DEFINE_bool("help", False, "Show this help.", short_name="h", flag_values=values)
    flags.DEFINE_multi_string("shelf", [], "Folder with more components.", flag_values=values)
    values.__dict__["jddl_doc"] = (verb, doc or "")  # FlagValues has attributes for flags only
    return values


def parse(values: flags.FlagValues, argv: list[str]) -> list[str]:
    """Parse, show --help, add shelves; returns the positional arguments."""
    verb, doc = values.__dict__.pop("jddl_doc")
    rest = values([f"jddl {verb}", *argv])[1:]
    if values.help:
        print(f"{doc.strip()}\n\nflags of jddl {verb}:\n{values.get_help()}")
        sys.exit(0)
    for folder in values.shelf:
        catalog.add_shelf(folder)
    return list(rest)


def parse_with_config(
    values: flags.FlagValues, argv: list[str]
) -> tuple[ConfigDict, tuple[str, ...], list[str]]:
    """Parse a verb that takes --config; returns (config, allowed packages, positionals).

    Raises:
      ValueError: no --config, a wrong file, field or value.
    """
    flags.DEFINE_multi_string(
        "allow_import", [], "Package from which dotted component names may be imported.",
        flag_values=values,
    )  # fmt: skip
    argv = list(values.read_flags_from_files(argv, force_gnu=False))
    path, argv = _take_config(argv)
    config, accepted = (None, ()) if path is None else load_config(path)
    if config is None and "--help" not in argv and "-h" not in argv:
        raise ValueError("say --config=FILE, for example --config=configs/quickstart.py")
    for argument in argv:
        if argument.startswith(("--config.", "--noconfig.")):
            field = argument.split("=")[0].split(".", 1)[1]
            if field not in DEFAULTS:
                from jddl.experiment import complete

                complete({field: ""})  # raises with the alternatives
    config_flags.DEFINE_config_dict(
        "config", config or ConfigDict(), flag_values=values, sys_argv=["jddl", *argv]
    )
    rest = parse(values, argv)
    sys.path.append("")  # a user's own module in the working directory
    return values.config, (*accepted, *values.allow_import), rest


def _take_config(argv: list[str]) -> tuple[str | None, list[str]]:
    path, rest, index = None, [], 0
    while index < len(argv):
        if argv[index] in ("--config", "-config") and index + 1 < len(argv):
            path, index = argv[index + 1], index + 1
        elif argv[index].startswith("--config="):
            path = argv[index].split("=", 1)[1]
        else:
            rest.append(argv[index])
        index += 1
    return path, rest


def text_or_json(values: Any, rows: Any, text: str) -> None:
    """Print the table, or the rows as JSON under --json."""
    if values.json:
        import json

        print(json.dumps(rows, indent=1))
    else:
        print(text)
