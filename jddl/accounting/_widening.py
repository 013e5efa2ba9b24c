"""What XLA:CPU makes of collectives in low precision."""

from __future__ import annotations

from dataclasses import replace

from jddl.accounting._record import Measurement, Operation

# It computes in none of these: bfloat16 travels as float32, float8 as float16 (e8m0 as float32),
# int4 as int8. Read off the programs that it compiled (JAX 0.10 and 0.12); a test looks again.
WIDER = {
    "bfloat16": 2,
    "float8_e3m4": 2,
    "float8_e4m3": 2,
    "float8_e4m3b11fnuz": 2,
    "float8_e4m3fn": 2,
    "float8_e4m3fnuz": 2,
    "float8_e5m2": 2,
    "float8_e5m2fnuz": 2,
    "float8_e8m0fnu": 4,
    "int4": 2,
    "uint4": 2,
}


def widened_on_cpu(measured: Measurement) -> Measurement:
    """The bytes that XLA:CPU moves for a traced step: what `measure_hlo` finds there.

    A native collective whose operand is narrow is widened on CPU alone, so the traced bytes are
    those of an accelerator. What travels bit-cast is of an integer type and stays as it is.

    Args:
      measured: from `measure`; of a multi-operand collective the first dtype decides.
    """
    return replace(measured, operations=tuple(map(_widened, measured.operations)))


def _widened(operation: Operation) -> Operation:
    factor = WIDER.get(operation.dtype, 1)
    return replace(
        operation,
        operand_bytes=operation.operand_bytes * factor,
        sent=operation.sent * factor,
        received=operation.received * factor,
    )
