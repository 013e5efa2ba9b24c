"""Floating-point operations: two for each multiply-add of a dot product or convolution."""

from __future__ import annotations

import math

import numpy as np
from jax.extend.core import JaxprEqn


def flops(eqn: JaxprEqn) -> int:
    """2 m n k of a dot_general or a conv_general_dilated, 0 of any other equation.

    A convolution counts each output element times the kernel entries that reach it, padding
    included; products with the zeros that dilating the input puts in (the gradient of a strided
    convolution) are left out.
    """
    match eqn.primitive.name:
        case "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            lhs, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
            return 2 * math.prod(out) * math.prod(lhs[dim] for dim in contracted)
        case "conv_general_dilated":
            return 2 * _multiply_adds(eqn)
    return 0


def _multiply_adds(eqn: JaxprEqn) -> int:
    numbers = eqn.params["dimension_numbers"]
    kernel, out = eqn.invars[1].aval.shape, eqn.outvars[0].aval.shape
    out_batch, out_feature, *out_spatial = numbers.out_spec
    _, in_feature, *kernel_spatial = numbers.rhs_spec  # input features of one group
    reached = 1
    for i, (dim, kernel_dim) in enumerate(zip(out_spatial, kernel_spatial, strict=True)):
        # Where output o meets kernel entry k in the dilated input: int[o, k]
        place = (
            np.arange(out[dim])[:, None] * eqn.params["window_strides"][i]
            + np.arange(kernel[kernel_dim]) * eqn.params["rhs_dilation"][i]
            - eqn.params["padding"][i][0]
        )
        reached *= int(np.count_nonzero(place % eqn.params["lhs_dilation"][i] == 0))
    return out[out_batch] * out[out_feature] * kernel[in_feature] * reached
