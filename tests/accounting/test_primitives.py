"""No primitive that names an axis goes uncounted, in any version of JAX."""

import jax
import numpy as np
import pytest
from jax import lax
from jax._src.lax import parallel
from jax.extend.core import Primitive

from jddl.accounting import measure
from jddl.accounting._primitives import KINDS, REFUSED, SILENT

X = jax.ShapeDtypeStruct((120,), np.float32)
AXES = {"data": 4}


def test_every_primitive_of_this_jax_stands_in_one_table():
    names = {v.name for v in vars(parallel).values() if isinstance(v, Primitive)}
    assert {"psum", "ppermute", "all_gather", "axis_index"} <= names
    known = {*KINDS, *SILENT, *REFUSED}
    assert {n.removesuffix("_start").removesuffix("_done") for n in names} <= known
    assert not (set(KINDS) & SILENT or SILENT & set(REFUSED) or set(KINDS) & set(REFUSED))


def novel(**params):
    """A collective that no table knows."""
    primitive = Primitive("hyper_reduce")
    primitive.def_abstract_eval(lambda x, **_: x)
    return lambda x: primitive.bind(x, **params)


@pytest.mark.parametrize("params", [{"axes": ("data",)}, {"axis_name": "data"}])
def test_an_unknown_collective_is_an_error(params):
    with pytest.raises(ValueError, match="'hyper_reduce' over \\['data'\\] is not understood"):
        measure(novel(**params), X, axes=AXES)


def test_an_unknown_primitive_without_an_axis_is_local():
    assert measure(novel(axes=(0,)), X, axes=AXES).sent_bytes == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x: x)
    with pytest.raises(ValueError, match=f"'{name}' are not understood: .{{20}}"):
        measure(primitive.bind, X, axes=AXES)


def test_a_collective_where_nobody_says_how_often_it_runs_is_an_error():
    def step(x):
        return lax.custom_linear_solve(
            lambda v: lax.psum(v, "data"), x, lambda _, b: b, symmetric=True
        )

    with pytest.raises(ValueError, match="inside 'custom_linear_solve' is not understood"):
        measure(step, X, axes=AXES)


def test_the_operands_of_a_ragged_exchange_are_counted_full():
    def step(x, sizes):
        return lax.ragged_all_to_all(x, x, sizes, sizes, sizes, sizes, axis_name="data")

    found = measure(step, X, jax.ShapeDtypeStruct((4,), np.int32), axes=AXES)
    assert (found.sent_bytes, found.rounds, len(found.notes)) == (360, 3, 1)


@pytest.mark.parametrize(
    ("start", "sent"),
    [("ppermute_start", 480), ("psum_scatter_start", 360), ("all_gather_start", 1440)],
)
def test_an_asynchronous_pair_is_counted_once(start, sent):
    options = {"perm": [(i, (i + 1) % 4) for i in range(4)]} if "ppermute" in start else {}
    function = getattr(parallel, start)
    if "scatter" in start:
        options["tiled"] = True

    def step(x):
        return function(x, "data", **options).done()

    found = measure(step, X, axes=AXES)
    assert (found.sent_bytes, found.calls) == (sent, 1)
