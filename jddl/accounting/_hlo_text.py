"""Read the text of a compiled program: computations, instructions, attributes, shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

BITS = {
    "pred": 8, "token": 0, "opaque": 0,
    "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3fnuz": 8, "f8e4m3b11fnuz": 8,
    "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip
COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-\w+)[\w-]*"
)
_COMMENT = re.compile(r"/\*.*?\*/")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{\s*$")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([^\]]*)\]")


@dataclass(frozen=True)
class Instruction:
    """`name = shape opcode(operands), attributes`."""

    name: str
    shape: str
    opcode: str
    rest: str

    @cached_property
    def parts(self) -> tuple[list[str], dict[str, str]]:
        """Operands and attributes."""
        pieces = list(_split("(" + self.rest))
        operands = list(_split(pieces[0][1:-1]))
        pairs = (piece.partition("=") for piece in pieces[1:])
        return operands, {key.strip(): value.strip() for key, _, value in pairs}

    @property
    def operands(self) -> list[str]:
        """Each as it is written: '%name', or 'f32[8]{0} %name'."""
        return self.parts[0]

    @property
    def attributes(self) -> dict[str, str]:
        return self.parts[1]

    def called(self, *keys: str) -> list[str]:
        """Names of the computations in these attributes."""
        values = (self.attributes.get(key, "") for key in keys)
        return [name for value in values for name in re.findall(r"[\w.\-]+", value)]

    @property
    def scope(self) -> str:
        """JAX's name stack."""
        found = re.search(r'op_name="([^"]*)"', self.attributes.get("metadata", ""))
        return found[1] if found else ""


@dataclass
class Computation:
    """Instructions in order, and the shape of each by its name."""

    instructions: list[Instruction] = field(default_factory=list)
    shapes: dict[str, str] = field(default_factory=dict)

    def operand_shapes(self, instruction: Instruction) -> list[str]:
        """The shape of each operand, as written in the operand or where it is defined."""
        shapes = []
        for operand in instruction.operands:
            written, _, name = operand.rpartition(" ")
            shape = written or self.shapes.get(name.lstrip("%"), "")
            if not shape:
                raise ValueError(f"the HLO operand {operand!r} is not understood: no shape")
            shapes.append(shape)
        return shapes


def parse(text: str) -> tuple[dict[str, Computation], str]:
    """The computations of a module by name, and the name of its entry.

    Raises:
      ValueError: no entry, or a collective on a line that is no instruction.
    """
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for raw in text.splitlines():
        line = _COMMENT.sub("", raw) if "/*" in raw else raw
        if current is None or not line.startswith(" "):
            opened = _COMPUTATION.match(line)
            current = computations.setdefault(opened[2], Computation()) if opened else None
            entry = opened[2] if opened and opened[1] else entry
        elif found := _INSTRUCTION.match(line):
            instruction = Instruction(*found.groups())
            current.instructions.append(instruction)
            current.shapes[instruction.name] = instruction.shape
        elif re.search(COLLECTIVE.pattern + r"\(", line):
            raise ValueError(f"the HLO line is not understood: {line.strip()[:120]}")
    if not entry:
        raise ValueError("this is no text of a compiled program: it has no ENTRY computation")
    return computations, entry


def nbytes(shape: str) -> int:
    """Bytes of a shape: 'f32[8,2]{1,0}', or a tuple of such.

    Raises:
      ValueError: an element type that is not understood.
    """
    total = 0
    for dtype, dims in _SHAPE.findall(shape):
        if dtype not in BITS:
            raise ValueError(f"the HLO type {dtype!r} in {shape!r} is not understood")
        sizes = [int(dim.lstrip("<=")) for dim in dims.split(",") if dim]  # <=8: at most 8
        total += -(-math.prod(sizes) * BITS[dtype] // 8)
    return total


def dtype_of(shape: str) -> str:
    """The first element type of a shape."""
    found = _SHAPE.search(shape)
    return found[1] if found else ""


def _split(text: str) -> Iterator[str]:
    """Pieces between the commas that stand in no bracket and no quotes."""
    depth, start, quote = 0, 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c == '"':
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if last := text[start:].strip():
        yield last
