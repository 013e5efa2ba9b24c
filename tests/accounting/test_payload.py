"""What one worker contributes: marked arrays, and operands outside an exchange."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jddl.accounting import exchange, measure, payload

X = jax.ShapeDtypeStruct((120,), np.float32)
AXES = {"data": 4}


def test_operands_outside_an_exchange_are_payload():
    step = lambda x: lax.psum(x, "data") + lax.psum(x[:10], "data").sum()  # noqa: E731
    assert measure(step, X, axes=AXES).payload_bytes == 480 + 40


def test_marked_arrays_count_once_however_often_they_travel():
    def ring(x):
        with exchange():
            x = payload(x)
            for _ in range(3):
                x = jax.jit(lambda v: lax.ppermute(v, "data", [(0, 1), (1, 0)]))(x)
            return lax.fori_loop(0, 5, lambda _, v: lax.psum(v, "data"), x)

    found = measure(ring, X, axes=AXES)
    assert (found.payload_bytes, found.marked_bytes) == (480, 480)
    assert found.sent_bytes == 3 * 480 + 5 * 720
    assert [row["payload_bytes"] for row in found.by_operation] == [0, 0]


def test_marks_of_a_tree_add_up_and_those_in_a_loop_as_often_as_it_runs():
    def step(x):
        marked = payload({"signs": x[:10].astype(np.int8), "scale": x[0]})  # 10 + 4 bytes
        x = x + marked["scale"] + marked["signs"].sum()
        return lax.scan(lambda c, _: (payload(c), None), x, None, length=3)[0]

    assert measure(step, X, axes=AXES).payload_bytes == 14 + 3 * 480


def test_inside_and_outside_add_up():
    def step(x):
        with exchange():
            y = lax.psum(payload(x), "data")
        return lax.psum(y, "data")

    assert measure(step, X, axes=AXES).payload_bytes == 2 * 480


def test_an_exchange_is_known_in_a_gradient():
    def loss(x):
        with exchange():
            return lax.psum(payload(x * x), "data").sum()

    found = measure(jax.grad(loss), X, axes=AXES)
    assert found.marked_bytes == found.payload_bytes  # the transposed collective adds nothing


def test_an_unused_mark_is_dead_code():
    assert measure(lambda x: (payload(x), x)[1], X, axes=AXES).payload_bytes == 0


def test_marks_cost_nothing_in_the_compiled_program():
    def plain(x):
        return jnp.tanh(x * 2).sum()

    def marked(x):
        with exchange():
            return jnp.tanh(payload(x * 2)).sum()

    def opcodes(f):
        lines = jax.jit(f).lower(X).compile().as_text().splitlines()
        return [
            line.split("metadata")[0].replace("marked", "plain") for line in lines if "%" in line
        ]

    assert opcodes(plain) == opcodes(marked)
