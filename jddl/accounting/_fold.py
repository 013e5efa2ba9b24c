"""Known scalars: what the walk can tell without running the program.

A branch that depends on the step number alone is decided by these. NumPy evaluates: binding a JAX
primitive would start the backend, after which the number of devices is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Literal

Known: TypeAlias = np.ndarray | None  # a 0-d integer or bool, or unknown

_IDENTITIES = {
    "broadcast_in_dim",
    "copy",
    "copy_p",
    "device_put",
    "name",
    "optimization_barrier",
    "pvary",
    "reshape",
    "sharding_constraint",
    "squeeze",
}
_TABLE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "add_any": np.add,
    "and": np.bitwise_and,
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "convert_element_type": np.asarray,  # the result's own type is applied below
    "div": lambda x, y: (abs(int(x)) // abs(int(y))) * int(np.sign(x) * np.sign(y)),  # to zero
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "integer_pow": lambda x, y: x**y,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "rem": np.fmod,  # the sign of the dividend, as XLA
    "select_n": lambda which, *cases: cases[int(which)],
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "sign": np.sign,
    "square": np.square,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}


def scalar(value: Any, dtype: Any) -> Known:
    """`value` as a known scalar of `dtype`, None where it is no concrete 0-d integer or bool."""
    concrete = isinstance(value, (bool, int, np.generic, np.ndarray, jax.Array))
    if not concrete or isinstance(value, jax.core.Tracer) or np.ndim(value) != 0:
        return None
    return np.asarray(value).astype(dtype) if _countable(dtype) else None


def literal(atom: Literal) -> Known:
    """The value of a literal."""
    return scalar(atom.val, atom.aval.dtype)


def fold(eqn: JaxprEqn, values: Sequence[Known]) -> list[Known]:
    """The known results of an equation without sub-jaxprs.

    Args:
      eqn: the equation.
      values: of its operands.

    Returns:
      One entry a result. An identity passes on each operand that is known; every other function
      needs all of them.
    """
    name = eqn.primitive.name
    unknown: list[Known] = [None] * len(eqn.outvars)
    if name in _IDENTITIES and len(values) >= len(eqn.outvars):
        pairs = zip(values, eqn.outvars, strict=False)
        return [None if v is None else _typed(v, out) for v, out in pairs]
    if name not in _TABLE or len(eqn.outvars) != 1 or not values:
        return unknown
    arguments = [v for v in values if v is not None]
    if len(arguments) < len(values):
        return unknown
    if name == "integer_pow":
        arguments.append(np.asarray(eqn.params["y"]))
    if name in ("div", "rem") and arguments[1] == 0:
        return unknown
    # Functions of arrays wrap integers around without a warning, as XLA does.
    return [_typed(_TABLE[name](*arguments), eqn.outvars[0])]


def _typed(value: Any, out: Any) -> Known:
    if getattr(out.aval, "shape", None) != () or not _countable(out.aval.dtype):
        return None
    return np.asarray(value).astype(out.aval.dtype)


def _countable(dtype: Any) -> bool:
    """Integers and bools; an extended dtype (a PRNG key) has no kind."""
    return getattr(dtype, "kind", "") in ("i", "u", "b")
