"""What the sources say about components: read with `ast`, so nothing is imported.

A shelf is a folder of the package (and of each added folder); a component is a file without a
leading underscore. Two shelves, `optimizers` and `schedules`, hold the functions of some of optax's
files too.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent

# Shelf -> where the record stands that its factories return.
SHELVES: dict[str, str] = {
    "tasks": "jddl.records.Task",
    "models": "jddl.records.Model",
    "collectives": "jddl.collectives._schedule.Schedule",
    "compressors": "jddl.records.Compressor",
    "aggregators": "jddl.records.Aggregator",
    "network": "jddl.records.Cluster",
    "runtimes": "jddl.records.Runtime",
}
# Shelf -> (a module that exports functions, the file in optax's folder that defines them), ...
OPTAX_SHELVES: dict[str, tuple[tuple[str, str], ...]] = {
    "optimizers": (("optax", "_src/alias.py"), ("optax.contrib", "contrib/_muon.py")),
    "schedules": (("optax", "schedules/_schedule.py"),),
}
# Shelf -> what every made component of it passes through.
FINISHED_BY: dict[str, str] = {"schedules": "jddl.schedules._steps.of_float_steps"}
_SHELF_OF = {record.rsplit(".", 1)[-1]: shelf for shelf, record in SHELVES.items()} | {
    "ScalarOrSchedule": "schedules"
}
_ADDED: list[Path] = []
MISSING = object()


@dataclass(frozen=True)
class Parameter:
    """One argument of a factory. `default` is its literal, or MISSING."""

    name: str
    annotation: str
    default: Any

    @property
    def required(self) -> bool:
        """Whether the spec (or the run) must supply it."""
        return self.default is MISSING

    @property
    def shelf(self) -> str | None:
        """The shelf its value comes from, read off the annotation."""
        words = self.annotation.replace("[", " ").replace("]", " ").replace("|", " ")
        for word in words.replace(",", " ").split():
            found = _SHELF_OF.get(word.rsplit(".", 1)[-1])
            if found:
                return found
        return None

    @property
    def takes_float(self) -> bool:
        """Whether a number given to it is a float, so that 1 and 1.0 are one value."""
        return "float" in self.annotation or "ScalarOrSchedule" in self.annotation

    def __str__(self) -> str:
        text = f"{self.name}: {self.annotation}" if self.annotation else self.name
        return text if self.required else f"{text} = {self.default!r}"


@dataclass(frozen=True)
class Component:
    """What the source says about a factory."""

    shelf: str
    name: str
    parameters: tuple[Parameter, ...]
    doc: str
    path: Path
    examples: tuple[str, ...] = ()
    exact: str = ""  # the spec at which a lossy component loses nothing
    broken: str = ""

    @property
    def summary(self) -> str:
        """The first line of the docstring, or what is wrong with the file."""
        return f"broken: {self.broken}" if self.broken else self.doc.strip().split("\n")[0]

    @property
    def signature(self) -> str:
        """As one would write it in Python."""
        return f"{self.name}({', '.join(str(p) for p in self.parameters)})"


def shelves() -> list[str]:
    """The names of all shelves."""
    return [*SHELVES, *OPTAX_SHELVES]


def add_shelf(folder: str | Path) -> None:
    """Add a user's folder that holds sub-folders named after shelves."""
    path = Path(folder).resolve()
    if not path.is_dir():
        raise ValueError(f"no such shelf folder: {folder}")
    inside = [d.name for d in path.iterdir() if d.is_dir() and not d.name.startswith(("_", "."))]
    if not set(inside) & set(shelves()):
        raise ValueError(
            f"{folder} holds no folder named after a shelf; shelves are {', '.join(shelves())}"
        )
    if path not in _ADDED:
        _ADDED.append(path)


def remove_shelf(folder: str | Path) -> None:
    """Undo `add_shelf`."""
    _ADDED.remove(Path(folder).resolve())


def names(shelf: str) -> list[str]:
    """The components of a shelf, sorted."""
    return sorted(files(shelf))


def describe(shelf: str, name: str) -> Component:
    """What the source says about one component.

    Raises:
      ValueError: unknown shelf or name, with what is meant or possible.
    """
    found = files(shelf)
    if name not in found:
        elsewhere = [s for s in shelves() if s != shelf and name in files(s)]
        if elsewhere:
            raise ValueError(
                f"{name!r} is in {elsewhere[0]}; here one of {shelf} is wanted: "
                + ", ".join(names(shelf))
            )
        raise ValueError(f"unknown {_singular(shelf)} {name!r}; " + alternatives(name, found))
    path = found[name]
    return _read(shelf, name, path, path.stat().st_mtime_ns)


def files(shelf: str) -> dict[str, Path]:
    """The file of each component of a shelf."""
    if shelf not in shelves():
        raise ValueError(f"unknown shelf {shelf!r}; " + alternatives(shelf, shelves()))
    folders = [PACKAGE / shelf, *(root / shelf for root in _ADDED)]
    theirs = _optax_functions(shelf) if shelf in OPTAX_SHELVES else {}
    return theirs | {
        path.stem: path
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith("_")
    }


@cache
def _optax_files(shelf: str) -> dict[Path, str]:
    """Each file of optax that belongs to a shelf -> the module that exports its functions."""
    found = importlib.util.find_spec("optax")  # does not import the package
    assert found is not None and found.origin is not None
    root = Path(found.origin).parent
    return {root / file: module for module, file in OPTAX_SHELVES.get(shelf, ())}


def optax_module(component: Component) -> str | None:
    """The module of optax that exports this component; None for a file of a shelf folder."""
    return _optax_files(component.shelf).get(component.path)


@cache
def _optax_functions(shelf: str) -> dict[str, Path]:
    wanted = "learning_rate" if shelf == "optimizers" else None
    return {
        node.name: path
        for path in _optax_files(shelf)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and (wanted is None or wanted in [a.arg for a in node.args.args])
        and node.name != "lbfgs"  # its update wants the loss as a function
    }


@cache
def _read(shelf: str, name: str, path: Path, mtime: int) -> Component:
    try:
        module = _parse(path, mtime)
    except SyntaxError as error:
        broken = f"{error.msg} (line {error.lineno})"
        return Component(shelf, name, (), "", path, broken=broken)
    found: tuple[str, ...] = ()
    exact = ""
    function: ast.FunctionDef | None = None
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            function = node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXAMPLES":
            found = tuple(ast.literal_eval(node.value))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXACT":
            exact = ast.literal_eval(node.value)
    if function is None:
        return Component(shelf, name, (), "", path, broken=f"it defines no function {name!r}")
    arguments = [*function.args.args, *function.args.kwonlyargs]
    plain = function.args.defaults
    defaults = [None] * (len(function.args.args) - len(plain)) + [*plain]
    parameters = tuple(
        Parameter(a.arg, ast.unparse(a.annotation) if a.annotation else "", _literal(d))
        for a, d in zip(arguments, [*defaults, *function.args.kw_defaults], strict=True)
    )
    doc = ast.get_docstring(function) or ""
    return Component(shelf, name, parameters, doc, path, found, exact)


@cache
def _parse(path: Path, mtime: int) -> ast.Module:
    """Parsed once: optax defines all its optimisers in one file."""
    del mtime  # part of the cache's key: an edited file is read again
    return ast.parse(path.read_text())


def _literal(node: ast.expr | None) -> Any:
    if node is None:
        return MISSING
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _singular(shelf: str) -> str:
    return shelf.removesuffix("s")


def alternatives(name: str, known: Iterable[str]) -> str:
    """'did you mean …?' where something is near, else the whole list."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return "there are: " + (", ".join(sorted(known)) or "none")
