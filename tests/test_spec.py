import hypothesis.strategies as st
import pytest
from hypothesis import given

from jddl import spec
from jddl.spec import Spec

NAMES = st.sampled_from(["topk", "ring", "my_pkg.tasks.make", "x1"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)  # fmt: skip


def values(inner):
    keywords = st.dictionaries(st.sampled_from("abcdef"), inner, max_size=3)
    calls = st.builds(lambda n, k: Spec(n, (), tuple(k.items())), NAMES, keywords)
    nested = st.builds(lambda n, c: Spec(n, (c,)), NAMES, calls)
    return st.one_of(
        calls,
        nested,
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    )


@given(st.recursive(SCALARS, values, max_leaves=12))
def test_parse_inverts_render(value):
    assert spec.parse(spec.render(value)) == value


@pytest.mark.parametrize(
    "text", ["1 + 1", "f(**x)", "f(3)", "f(x)(y)", "lambda: 1", "[x for x in y]", "f(", "f(a=1, a=2)",
             "__import__('os').system('x')", "{1: 2}", "f(a=b'x')", ""]
)  # fmt: skip
def test_what_is_no_spec_is_refused_in_one_line(text):
    with pytest.raises(ValueError) as error:
        spec.parse(text)
    assert "\n" not in str(error.value)


def test_sweep_separator_stands_outside_brackets_and_quotes():
    assert spec.split_sweep("mean; f(a='x;y') ;[1;2]") == ["mean", "f(a='x;y')", "[1;2]"]


def test_keyword_order_does_not_matter():
    assert str(spec.parse("f(b=1, a=2)")) == str(spec.parse("f(a=2, b=1)")) == "f(a=2, b=1)"
