"""Names become components: the folder is the registry.

File name = factory name = name on the command line. `components` reads the sources; here a spec is
checked against them (no import), brought to its canonical form, or built (only `make` imports).
The shelf of a nested component is the annotation of the parameter that receives it:
`error_feedback(compressor: Compressor)` takes a member of `compressors`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jddl import spec as specs
from jddl.components import (
    FINISHED_BY,
    MISSING,
    PACKAGE,
    SHELVES,
    Component,
    Parameter,
    add_shelf,
    alternatives,
    describe,
    files,
    names,
    optax_module,
    remove_shelf,
    shelves,
)
from jddl.spec import Spec, Value

__all__ = [
    "add_shelf", "alternatives", "canonical", "check", "describe", "exact", "examples", "factory",
    "make", "names", "on_lists", "open_shelf", "remove_shelf", "shelves", "stub",
]  # fmt: skip

FACTS = ("batch_size", "n", "inputs", "outputs", "vocabulary")  # of the run: a spec cannot choose


def examples(shelf: str) -> list[str]:
    """Every spec in the shelf's `EXAMPLES`, for tests over whole shelves."""
    return [e for name in names(shelf) for e in describe(shelf, name).examples]


def canonical(shelf: str, text: str, allow_import: tuple[str, ...] = ()) -> str:
    """The sorted, default-free text of a spec: equal components have equal labels."""
    return specs.render(_without_defaults(shelf, specs.parse_call(text), allow_import))


def exact(shelf: str, text: str, allow_import: tuple[str, ...] = ()) -> str:
    """The canonical spec with every lossy component of the nest set so that it loses nothing.

    A file says how in `EXACT = "topk(ratio=1.0)"`; `EXACT = "identity"` where no argument does it.
    """
    lossless = _exact(shelf, specs.parse_call(text), allow_import)
    return canonical(shelf, specs.render(lossless), allow_import)


def on_lists(
    shelf: str,
    text: str,
    given: Mapping[str, Any] | None = None,
    allow_import: tuple[str, ...] = (),
) -> Any:
    """The component's rule on an explicit list of workers (`on_lists` of its file), or None.

    It takes those of the factory's arguments that it has parameters for.
    """
    spec = specs.parse_call(text)
    _check(shelf, spec, given or {}, allow_import)
    component, function = _open(shelf, spec, allow_import)
    form = getattr(sys.modules[function.__module__], "on_lists", None)
    if form is None:
        return None
    arguments = _built_arguments(component, spec, given or {}, allow_import)
    return form(**{k: v for k, v in arguments.items() if k in inspect.signature(form).parameters})


def check(
    shelf: str,
    text: str,
    given: Mapping[str, Any] | None = None,
    allow_import: tuple[str, ...] = (),
) -> None:
    """Check a spec (names, arguments, types) without importing shelf members.

    Raises:
      ValueError: in one line.
    """
    _check(shelf, specs.parse_call(text), given or {}, allow_import)


def make(
    shelf: str,
    text: str | Spec,
    given: Mapping[str, Any] | None = None,
    allow_import: tuple[str, ...] = (),
) -> Any:
    """Build the component that a spec names.

    Args:
      shelf: for example 'compressors'.
      text: for example 'topk(ratio=0.01)'.
      given: values that the run supplies to any factory of the nest that has a parameter of that
        name which the spec leaves open (`axis`, `all_reduce`, `batch_size` ...).
      allow_import: the packages from which dotted names may be imported.

    Raises:
      ValueError: in one line, naming the mistake and the alternatives.
    """
    spec = specs.parse_call(text) if isinstance(text, str) else text
    given = given or {}
    _check(shelf, spec, given, allow_import)
    return _build(shelf, spec, given, allow_import)


def factory(shelf: str, name: str) -> Any:
    """Import and return the factory of a component."""
    component = describe(shelf, name)
    if component.broken:
        raise ValueError(f"{shelf}/{name} is broken: {component.broken}")
    if module_of_optax := optax_module(component):
        return getattr(importlib.import_module(module_of_optax), name)
    if component.path.is_relative_to(PACKAGE):
        importlib.import_module(f"jddl.{shelf}.{name}")
        module = sys.modules[f"jddl.{shelf}.{name}"]
    else:
        module = _load_file(component.path)
    return getattr(module, name)


def open_shelf(package: str) -> tuple[Any, Any]:
    """`__getattr__, __dir__ = open_shelf(__name__)`: the two lines of a shelf's `__init__`.

    `jddl.compressors.topk` is then always the factory: importlib binds the sub-module under the
    same name after import, so the package's class replaces such a binding by the factory.
    """
    shelf = package.rsplit(".", 1)[-1]

    class Shelf(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, types.ModuleType) and not name.startswith("_"):
                value = getattr(value, name, value)
            super().__setattr__(name, value)

    sys.modules[package].__class__ = Shelf

    def get(name: str) -> Any:
        if name.startswith("_") or name not in files(shelf):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return factory(shelf, name)

    return get, lambda: names(shelf)


def stub(shelf: str) -> str:
    """The shelf's `__init__.pyi`: exact signatures for type checkers (`make stubs` writes it)."""
    members = sorted(p.stem for p in (PACKAGE / shelf).glob("*.py") if not p.name.startswith("_"))
    return "".join(f"from jddl.{shelf}.{m} import {m} as {m}\n" for m in members)


def _from_import(shelf: str, spec: Spec, allow_import: tuple[str, ...]) -> tuple[Component, Any]:
    """The component that a dotted name imports; code, so only from allowed packages."""
    package, _, attribute = spec.name.rpartition(".")
    top = package.split(".")[0]
    if top in sys.stdlib_module_names:
        raise ValueError(f"{spec.name} is in the standard library; nothing is imported from there")
    if top not in allow_import:
        raise ValueError(
            f"{spec.name} is code from the package {top!r}: say --allow_import={top} to import it"
        )
    try:
        function = getattr(importlib.import_module(package), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {spec.name}: {error}") from None
    parameters = []
    for p in inspect.signature(function).parameters.values():
        annotation = "" if p.annotation is p.empty else p.annotation
        text = annotation if isinstance(annotation, str) else annotation.__name__
        parameters.append(Parameter(p.name, text, MISSING if p.default is p.empty else p.default))
    doc = inspect.getdoc(function) or ""
    path = Path(inspect.getsourcefile(function) or "?")
    return Component(shelf, spec.name, tuple(parameters), doc, path), function


def _load_file(path: Path) -> types.ModuleType:
    name = "jddl_shelf." + ".".join(path.with_suffix("").parts[-2:]) + f".{abs(hash(path)):x}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


# --- checking and building ---------------------------------------------------------------------


def _look_up(shelf: str, spec: Spec, allow_import: tuple[str, ...]) -> Component:
    if spec.dotted:
        return _from_import(shelf, spec, allow_import)[0]
    component = describe(shelf, spec.name)
    if component.broken:
        raise ValueError(f"{shelf}/{spec.name} is broken: {component.broken}")
    return component


def _arguments(component: Component, spec: Spec) -> dict[str, Value]:
    arguments = dict(spec.keywords)
    if spec.positional:
        if not component.parameters or component.parameters[0].name in arguments:
            raise ValueError(f"{component.name}: too many arguments in {spec}")
        arguments = {component.parameters[0].name: spec.positional[0]} | arguments
    return arguments


def _check(shelf: str, spec: Spec, given: Mapping[str, Any], allow: tuple[str, ...]) -> None:
    component = _look_up(shelf, spec, allow)
    known = {p.name: p for p in component.parameters}
    arguments = _arguments(component, spec)
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(
                f"{component.name} has no argument {name!r}; " + alternatives(name, known)
            )
        _check_value(component, known[name], value, given, allow)
    for parameter in component.parameters:
        if parameter.required and parameter.name not in arguments and parameter.name not in given:
            kind = f" (one of {parameter.shelf})" if parameter.shelf else ""
            raise ValueError(f"{component.name} needs the argument {parameter.name!r}{kind}")


def _check_value(
    component: Component,
    parameter: Parameter,
    value: Value,
    given: Mapping[str, Any],
    allow: tuple[str, ...],
) -> None:
    if isinstance(value, Spec):
        if parameter.shelf is None:
            raise ValueError(
                f"{component.name}: {parameter.name} takes {parameter.annotation or 'a value'}, "
                f"not the component {value.name!r}; a text is written in quotes"
            )
        _check(parameter.shelf, value, given, allow)
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            if isinstance(inner, Spec):
                _check_value(component, parameter, inner, given, allow)
    else:
        wanted = _scalar_types(parameter)
        if wanted and not _is_one_of(value, wanted):
            raise ValueError(
                f"{component.name}: {parameter.name} is {parameter.annotation}, not {value!r}"
            )


def _scalar_types(parameter: Parameter) -> set[str]:
    """The scalar types that a parameter takes; empty where its annotation says nothing."""
    annotation = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", parameter.annotation.strip())
    words = {w.strip().rsplit(".", 1)[-1] for w in annotation.split("|")}
    if "ScalarOrSchedule" in words:
        return {"float"} | words & {"None"}
    scalars = words & {"int", "float", "str", "bool", "None"}
    if scalars and scalars | {parameter.shelf and _record(parameter.shelf)} >= words:
        return scalars
    return {"component"} if parameter.shelf else set()


def _record(shelf: str) -> str:
    return SHELVES.get(shelf, shelf).rsplit(".", 1)[-1]


def _is_one_of(value: Value, wanted: set[str]) -> bool:
    if value is None:
        return "None" in wanted
    if isinstance(value, bool):
        return "bool" in wanted
    if isinstance(value, int):
        return bool({"int", "float"} & wanted)
    return type(value).__name__ in wanted


def _build(shelf: str, spec: Spec, given: Mapping[str, Any], allow: tuple[str, ...]) -> Any:
    component, function = _open(shelf, spec, allow)
    try:
        record = function(**_built_arguments(component, spec, given, allow))
    except Exception as error:  # a component may be anybody's: name it, whatever it raised
        raise ValueError(f"{spec}: {error}") from error
    _check_record(shelf, spec, record)
    return _attribute(FINISHED_BY[shelf])(record) if shelf in FINISHED_BY else record


def _open(shelf: str, spec: Spec, allow: tuple[str, ...]) -> tuple[Component, Any]:
    if spec.dotted:
        return _from_import(shelf, spec, allow)
    return _look_up(shelf, spec, allow), factory(shelf, spec.name)


def _built_arguments(
    component: Component, spec: Spec, given: Mapping[str, Any], allow: tuple[str, ...]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    stated = _arguments(component, spec)
    for name in FACTS:
        if name in stated and name in given and stated[name] != given[name]:
            raise ValueError(f"{spec}: {name} is {given[name]} in this run; leave it out")
    for parameter in component.parameters:
        if parameter.name in stated:
            arguments[parameter.name] = _build_value(
                parameter.shelf, stated[parameter.name], given, allow
            )
        elif parameter.name in given:
            arguments[parameter.name] = given[parameter.name]
    return arguments


def _exact(shelf: str, spec: Spec, allow: tuple[str, ...]) -> Spec:
    component = _look_up(shelf, spec, allow)
    if component.exact:
        return specs.parse_call(component.exact)
    inner = {p.name: p.shelf for p in component.parameters}
    first = component.parameters[0].name if component.parameters else ""
    visit = lambda name, v: _exact_value(inner.get(name), v, allow)  # noqa: E731
    return Spec(
        spec.name,
        tuple(visit(first, v) for v in spec.positional),
        tuple((name, visit(name, v)) for name, v in spec.keywords),
    )


def _exact_value(shelf: str | None, value: Value, allow: tuple[str, ...]) -> Value:
    if shelf is None:
        return value
    if isinstance(value, Spec):
        return _exact(shelf, value, allow)
    if isinstance(value, list):
        return [_exact_value(shelf, v, allow) for v in value]
    if isinstance(value, dict):
        return {k: _exact_value(shelf, v, allow) for k, v in value.items()}
    return value


def _build_value(
    shelf: str | None, value: Value, given: Mapping[str, Any], allow: tuple[str, ...]
) -> Any:
    if isinstance(value, Spec):
        assert shelf is not None  # _check has seen it
        return _build(shelf, value, given, allow)
    if isinstance(value, list):
        return [_build_value(shelf, v, given, allow) for v in value]
    if isinstance(value, dict):
        return {k: _build_value(shelf, v, given, allow) for k, v in value.items()}
    return value


def _attribute(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _check_record(shelf: str, spec: Spec, record: Any) -> None:
    if shelf not in SHELVES:
        return
    wanted = _attribute(SHELVES[shelf])
    if not isinstance(record, wanted):
        raise ValueError(
            f"{spec.name} returned a {type(record).__name__}; "
            f"the shelf {shelf} holds factories of {_record(shelf)}"
        )


def _without_defaults(shelf: str, spec: Spec, allow: tuple[str, ...]) -> Spec:
    component = _look_up(shelf, spec, allow)
    defaults = {p.name: p for p in component.parameters}
    kept = []
    first: tuple[Value, ...] = ()
    for index, (name, value) in enumerate(_arguments(component, spec).items()):
        parameter = defaults.get(name)
        if parameter is not None and parameter.shelf is not None:
            value = _canonical_value(parameter.shelf, value, allow)
        if parameter is not None and parameter.takes_float and type(value) is int:
            value = float(value)  # 1 and 1.0 are one number here
        if parameter is not None and (type(value), value) == (
            type(parameter.default),
            parameter.default,
        ):
            continue
        is_first = component.parameters[:1] == (parameter,) and isinstance(value, Spec)
        if is_first and index == 0:
            first = (value,)
        else:
            kept.append((name, value))
    return Spec(spec.name, first, tuple(kept))


def _canonical_value(shelf: str, value: Value, allow: tuple[str, ...]) -> Value:
    if isinstance(value, Spec):
        return _without_defaults(shelf, value, allow)
    if isinstance(value, list):
        return [_canonical_value(shelf, v, allow) for v in value]
    if isinstance(value, dict):
        return {k: _canonical_value(shelf, v, allow) for k, v in value.items()}
    return value


if __name__ == "__main__":
    for _shelf in (s for s in shelves() if (PACKAGE / s).is_dir()):
        (PACKAGE / _shelf / "__init__.pyi").write_text(stub(_shelf))
