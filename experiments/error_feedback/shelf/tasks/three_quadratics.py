"""Three quadratics whose largest gradient entries point the wrong way together."""

import jax.numpy as jnp
import numpy as np

from jddl.records import Task

EXAMPLES = ("three_quadratics",)
ROWS = np.array([[-3, 2, 2], [2, -3, 2], [2, 2, -3]], np.float32)


def three_quadratics(batch_size: int) -> Task:
    """f_i(x) = <a_i, x>^2 + |x|^2 / 4; row i of the batch is a_i, the output of the model is x.

    Args:
      batch_size: 3, one row a worker.
    """
    if batch_size != 3:
        raise ValueError(f"batch_size is 3, one row a worker, not {batch_size}")

    def loss(outputs, batch, ctx):
        values = jnp.sum(batch["inputs"] * outputs, 1) ** 2 + jnp.sum(outputs**2, 1) / 4
        return values.sum(), float(values.size)

    batch = lambda step, split, seed: {"inputs": ROWS}  # noqa: E731
    return Task(batch, loss, lambda *_: {}, {"validation": 1, "test": 1}, (3,), 3)
