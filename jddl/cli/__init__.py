"""The command line: `jddl VERB --flags`. One file a verb; the file's `run(argv)` does it."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(argv: list[str] | None = None) -> None:
    """Entry point. A user's mistake is one line on stderr and exit code 2."""
    args = [*(sys.argv[1:] if argv is None else argv)]  # `list` is a verb here
    verbs = {p.stem for p in FOLDER.glob("*.py") if not p.name.startswith("_")}
    if not args or args[0] in ("-h", "--help", "help"):
        print(_overview(sorted(verbs)))
        sys.exit(0)
    verb = args[0]
    if verb not in verbs:
        near = difflib.get_close_matches(verb, verbs, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(verbs))}"
        _fail(f"unknown verb {verb!r}; {hint}")
    from absl import flags

    try:
        module = importlib.import_module(f"jddl.cli.{verb}")
        sys.exit(module.run(args[1:]) or 0)
    except (ValueError, flags.Error) as error:
        _fail(" ".join(str(error).split()))
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except KeyboardInterrupt:
        _fail("interrupted", code=130)


def _fail(message: str, code: int = 2) -> None:
    print(f"jddl: {message}", file=sys.stderr)
    sys.exit(code)


def _overview(verbs: list[str]) -> str:
    lines = ["jddl VERB [--flags]; jddl VERB --help", ""]
    for verb in verbs:
        doc = ast.get_docstring(ast.parse((FOLDER / f"{verb}.py").read_text())) or ""
        lines.append(f"  {verb:10} {doc.splitlines()[0]}")
    return "\n".join(lines)
