"""Measure a compiled program: the same record, read off its HLO text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from jddl.accounting._conventions import Traffic, grouped, permuted
from jddl.accounting._hlo_groups import replica_groups, source_target_pairs
from jddl.accounting._hlo_text import COLLECTIVE, Computation, Instruction, dtype_of, nbytes, parse
from jddl.accounting._marks import EXCHANGE
from jddl.accounting._mesh import axes_within
from jddl.accounting._record import Measurement, Operation, Tally, dearest

KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-broadcast": "broadcast",
    "collective-permute": "permute",
}
# With a channel and without global device ids these three connect whole replicas, not partitions.
_ACROSS_REPLICAS = {"all-reduce", "all-gather", "reduce-scatter"}
# Names of custom calls, however spelt: "AsyncCollectiveStart", "xla.gpu.all_reduce".
_COMMUNICATES = re.compile(
    r"nccl|nvshmem|collective|all_?-?(reduce|gather|to_?-?all)|reduce_?-?scatter", re.I
)


def measure_hlo(program: Any, axes: Mapping[str, int] | None = None) -> Measurement:
    """Bytes and rounds of a compiled program.

    Bytes equal those of `measure` where the compiler changed none (it drops equal collectives,
    and XLA:CPU widens bf16); rounds and calls may be fewer, since it merges collectives. Ranks are
    partition ids: the order of the mesh's devices. Of an asynchronous pair the start is counted.
    FLOPs and payload marks are not read off: `flops` is None, `payload_bytes` an error.

    Args:
      program: `jax.jit(f).lower(...).compile()`, or its text.
      axes: {'data': 4, 'tensor': 2}, the mesh in its order, to tell operations by their axes;
        else all devices are one axis, 'device'.

    Raises:
      ValueError: a form that is not understood (it is named), a collective in a loop of unknown
        length, axes that do not fit the number of devices.
    """
    text = program if isinstance(program, str) else program.as_text()
    header = text.lstrip().split("\n", 1)[0]
    partitions, replicas = (_count(header, key) for key in ("num_partitions", "replica_count"))
    if partitions > 1 and replicas > 1:
        raise ValueError(f"{replicas} replicas of {partitions} partitions are not understood")
    num_ranks = partitions * replicas
    axes = dict(axes or {"device": num_ranks})
    if math.prod(axes.values()) != num_ranks:
        raise ValueError(f"the axes {axes} do not fit the program's {num_ranks} devices")
    computations, entry = parse(text)
    tally = _Walk(computations, axes).computation(entry)
    return Measurement(axes, tuple(tally.operations), tuple(tally.notes), None, None)


class _Walk:
    """One walk; each computation is read once, however often it is called."""

    def __init__(self, computations: dict[str, Computation], axes: dict[str, int]) -> None:
        self.computations = computations
        self.axes = axes
        self.num_ranks = math.prod(axes.values())
        self.read: dict[str, Tally] = {}

    def computation(self, name: str) -> Tally:
        if name not in self.read:
            found = self.computations.get(name)
            if found is None:
                raise ValueError(f"the HLO computation {name!r} is called and not defined")
            tally = Tally()
            for instruction in found.instructions:
                tally.add(self.instruction(instruction, found))
            self.read[name] = tally
        return self.read[name]

    def instruction(self, it: Instruction, home: Computation) -> Tally:
        base = it.opcode.removesuffix("-start")
        if base in KINDS:
            found = self.operation(base, it, home)
            note = "a ragged-all-to-all is counted as if its operand were full"
            return Tally([found] if found else [], notes=[note] * base.startswith("ragged"))
        if COLLECTIVE.fullmatch(it.opcode) and not it.opcode.endswith(("-update", "-done")):
            raise ValueError(f"the HLO operation {it.opcode!r} is not understood")
        match it.opcode:
            case "while":
                return self.loop(it)
            case "conditional":
                keys = ("branch_computations", "true_computation", "false_computation")
                return dearest([self.computation(name) for name in it.called(*keys)], it.scope)
            # async-update and async-done may name the computation of their start once more.
            case "call" | "fusion" | "async-start" | "custom-call":
                return self.calls(it)
            case "send" | "recv" if it.attributes.get("is_host_transfer") != "true":
                return self.half(it, home)
        return Tally()

    def half(self, it: Instruction, home: Computation) -> Tally:
        """A permutation that XLA:GPU cut into sends and receives: the send counts."""
        attributes = it.attributes.get("frontend_attributes", "")
        found = re.search(
            r'_xla_send_recv_source_target_pairs="?(\{(?:\{[\d,]+\},?\s*)+\})', attributes
        )
        if found is None or "_xla_send_recv_validation" in attributes:
            raise ValueError(f"the HLO operation {it.opcode!r} between devices is not understood")
        if it.opcode == "recv":
            return Tally()
        sent = self.permutation(it, found[1], home.operand_shapes(it)[:1])  # the other is a token
        return Tally([sent] if sent else [])

    def calls(self, it: Instruction) -> Tally:
        target = it.attributes.get("custom_call_target", "")
        config = it.attributes.get("backend_config", "")
        if _COMMUNICATES.search(target) or re.search(r"has_communication\W+true|nvshmem", config):
            raise ValueError(f"the HLO custom call {target} is not understood: it communicates")
        tally = Tally()
        for name in it.called("calls", "to_apply", "called_computations"):
            if "all-reduce-scatter" in name:  # a TPU's reduce-scatter, written as an all-reduce
                raise ValueError(f"the HLO {it.opcode} that calls {name!r} is not understood")
            tally.add(self.computation(name))
        return tally

    def loop(self, it: Instruction) -> Tally:
        (body,), (condition,) = it.called("body"), it.called("condition")
        each, test = self.computation(body), self.computation(condition)
        config = it.attributes.get("backend_config", "")
        known = re.search(r'known_trip_count"?:\{"?n"?:"?(\d+)', config)
        if known is None and (each.communicates or test.communicates):
            raise ValueError(
                f"the HLO loop {it.name!r} communicates and has no known trip count: measure the "
                "traced step with measure(..., trip_counts=[...])"
            )
        count = int(known[1]) if known else 1
        tally = Tally()
        tally.add(each, count)
        tally.add(test, count + 1)
        return tally

    def operation(self, opcode: str, it: Instruction, home: Computation) -> Operation | None:
        shapes = home.operand_shapes(it)
        if opcode == "collective-permute":
            if "slice_sizes" in it.attributes:  # a TPU's, from slices of buffers into others
                raise ValueError(f"the HLO {it.opcode} of slices, {it.name!r}, is not understood")
            pairs = it.attributes.get("source_target_pairs", "missing")
            return self.permutation(it, pairs, shapes)
        # The further operands of a ragged collective only say where its data go.
        shapes = shapes[:1] if opcode == "ragged-all-to-all" else shapes
        groups = self.groups(opcode, it)
        touched = axes_within(self.axes, groups)
        traffic = grouped(KINDS[opcode], groups, sum(map(nbytes, shapes)), self.num_ranks)
        return _operation(opcode, it, shapes, touched, max(map(len, groups)), traffic)

    def permutation(self, it: Instruction, text: str, shapes: list[str]) -> Operation | None:
        pairs = source_target_pairs(text, self.num_ranks)
        touched = axes_within(self.axes, pairs)
        members = math.prod(self.axes[name] for name in touched)
        traffic = permuted(pairs, sum(map(nbytes, shapes)), self.num_ranks)
        return _operation("collective-permute", it, shapes, touched, members, traffic)

    def groups(self, opcode: str, it: Instruction) -> list[list[int]]:
        text = it.attributes.get("replica_groups", "missing")
        over_replicas = (
            opcode in _ACROSS_REPLICAS
            and "channel_id" in it.attributes
            and it.attributes.get("use_global_device_ids") != "true"
        )
        # All partitions of the single replica 0 take part then.
        text = "{}" if over_replicas and text == "{{0}}" else text
        if over_replicas and text != "{}":
            raise ValueError(f"replica_groups={text} that number replicas are not understood")
        return replica_groups(text, self.num_ranks)


def _operation(
    opcode: str,
    it: Instruction,
    shapes: list[str],
    axes: tuple[str, ...],
    members: int,
    traffic: Traffic,
) -> Operation | None:
    sent, received, rounds = traffic
    if not rounds:
        return None
    size = sum(map(nbytes, shapes))
    return Operation(
        primitive=opcode,
        axes=axes,
        group_size=members,
        operand_bytes=size,
        dtype=dtype_of(shapes[0]),
        sent=sent,
        received=received,
        rounds=rounds,
        calls=1,
        payload_bytes=0 if EXCHANGE in it.scope else size,
        scope=it.scope,
    )


def _count(header: str, key: str) -> int:
    found = re.search(rf"\b{key}=(\d+)", header)
    return int(found[1]) if found else 1
