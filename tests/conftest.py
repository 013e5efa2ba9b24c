"""Eight simulated devices for the whole suite, made before the backend starts."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
