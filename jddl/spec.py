"""Spec strings: one line of text that names a component and its hyper-parameters.

Grammar (a strict subset of Python expressions, parsed with `ast`, nothing is evaluated)::

    value     = call | literal | list | dict
    call      = dotted_name [ "(" keyword "=" value, ... ")" ]     # a bare name is a call
    literal   = int | float | string | True | False | None
    list      = "[" value, ... "]"
    dict      = "{" string ":" value, ... "}"

One positional argument is allowed where it is itself a call, a list or a dict
(`error_feedback(topk(ratio=0.01))`); the catalog binds it to the first parameter. `str(Spec)`
is the canonical text: keywords sorted, positional argument first; `parse(str(spec)) == spec`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any  # Spec | int | float | str | bool | None | list[Value] | dict[str, Value]


@dataclass(frozen=True)
class Spec:
    """A call written down: a (dotted) name and its arguments.

    A dataclass, not a tuple, so that it is never walked as a list of values.
    """

    name: str
    positional: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keywords", tuple(sorted(self.keywords, key=lambda kv: kv[0])))

    @property
    def dotted(self) -> bool:
        """Whether the name is an import path rather than a name on a shelf."""
        return "." in self.name

    def __str__(self) -> str:
        arguments = [render(v) for v in self.positional]
        arguments += [f"{k}={render(v)}" for k, v in self.keywords]
        return f"{self.name}({', '.join(arguments)})"


def render(value: Value) -> str:
    """The canonical text of a value; `parse(render(value)) == value`."""
    if isinstance(value, Spec):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(render(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {render(value[k])}" for k in sorted(value)) + "}"
    return repr(value)


def parse(text: str) -> Value:
    """Parse a spec string.

    Raises:
      ValueError: in one line, with the text and what is wrong with it.
    """
    if not isinstance(text, str):
        raise ValueError(f"a spec is a string, not {type(text).__name__}: {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _convert(tree.body)
    except SyntaxError as error:
        raise ValueError(f"cannot read the spec {text!r}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"cannot read the spec {text[:40]!r}…: nested too deeply") from None
    except _NotASpecError as error:
        raise ValueError(f"cannot read the spec {text!r}: {error}") from None


def parse_call(text: str) -> Spec:
    """Parse a spec string that must be one component (a name or a call)."""
    spec = parse(text)
    if not isinstance(spec, Spec):
        raise ValueError(f"{text!r} is not a component: write a name such as 'ring', or a call")
    return spec


def split_sweep(text: str) -> list[str]:
    """Split at `;` outside brackets and quotes: the values of one `--sweep` field."""
    parts, depth, quote, current = [], 0, "", ""
    escaped = False
    for character in text:
        if quote:
            if not escaped and character == quote:
                quote = ""
            escaped = not escaped and character == "\\"
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == ";" and depth == 0:
            parts.append(current.strip())
            current = ""
            continue
        current += character
    parts.append(current.strip())
    return parts


def calls(value: Value) -> list[Spec]:
    """Every call inside a value, outermost first."""
    if isinstance(value, Spec):
        inner = [*value.positional, *(v for _, v in value.keywords)]
        return [value] + [c for v in inner for c in calls(v)]
    if isinstance(value, list):
        return [c for v in value for c in calls(v)]
    if isinstance(value, dict):
        return [c for v in value.values() for c in calls(v)]
    return []


class _NotASpecError(Exception):
    pass


def _convert(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=number)):
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
            raise _NotASpecError("a sign belongs before a number")
        case ast.List(elts=elements):
            return [_convert(e) for e in elements]
        case ast.Dict(keys=keys, values=values):
            return _convert_dict(keys, values)
        case ast.Name() | ast.Attribute():
            return Spec(_dotted_name(node))
        case ast.Call(func=function, args=args, keywords=keywords):
            return _convert_call(function, args, keywords)
        case ast.Constant(value=value):
            raise _NotASpecError(f"{type(value).__name__} values are not allowed")
    raise _NotASpecError(
        f"{type(node).__name__} is not allowed; a spec has names, calls with keywords, "
        "numbers, strings, lists and dicts"
    )


def _convert_dict(keys: list[ast.expr | None], values: list[ast.expr]) -> dict[str, Value]:
    result: dict[str, Value] = {}
    for key, value in zip(keys, values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise _NotASpecError("the keys of a dict are strings")
        if key.value in result:
            raise _NotASpecError(f"the key {key.value!r} stands twice")
        result[key.value] = _convert(value)
    return result


def _convert_call(function: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> Spec:
    positional = tuple(_convert(a) for a in args)
    if len(positional) > 1 or any(not isinstance(p, (Spec, list, dict)) for p in positional):
        raise _NotASpecError(
            "arguments are written with their names, as in topk(ratio=0.01); only one nested "
            "component, list or dict may stand first without a name"
        )
    named: list[tuple[str, Value]] = []
    for keyword in keywords:
        if keyword.arg is None:
            raise _NotASpecError("** is not allowed")
        if any(keyword.arg == seen for seen, _ in named):
            raise _NotASpecError(f"the argument {keyword.arg!r} stands twice")
        named.append((keyword.arg, _convert(keyword.value)))
    return Spec(_dotted_name(function), positional, tuple(named))


def _dotted_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted_name(value)}.{attribute}"
    raise _NotASpecError("a component is a name or a dotted import path")
