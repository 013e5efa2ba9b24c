"""Measuring starts no backend: afterwards the number of devices can still be chosen."""

import subprocess
import sys

CODE = """
import jax, numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P
from jddl.accounting import exchange, measure, payload

def step(n, key, x):
    noise = jax.random.normal(jax.random.fold_in(key, n), x.shape)
    table = jax.numpy.asarray(np.arange(120.))
    with exchange():
        y = lax.psum(payload(x + noise + table), 'data')
    return lax.cond((n // 2) % 4 == 1, lambda v: lax.psum(v, 'data'), lambda v: v, y)

x = jax.ShapeDtypeStruct((120,), np.float32)
key = jax.eval_shape(lambda: jax.random.key(0))
assert measure(step, 3, key, x, axes={'data': 4}).sent_bytes == 1440
assert measure(step, 4, key, np.zeros(120, np.float32), axes={'data': 4}).sent_bytes == 720
mesh = AbstractMesh((4,), ('data',), axis_types=(AxisType.Auto,))
mapped = jax.shard_map(step, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
assert measure(jax.jit(mapped), 3, key, x).sent_bytes == 1440
jax.config.update('jax_num_cpu_devices', 3)
assert jax.device_count() == 3
"""


def test_measuring_starts_no_backend():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
