"""HLO written by hand: each form of the text, and an error for each that is unknown."""

import numpy as np
import pytest

from jddl.accounting import measure_hlo

SUM = """
%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}
"""


def module(*lines, others="", devices="num_partitions=8"):
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule m, is_scheduled=true, {devices}\n{SUM}\n{others}\n"
        f"ENTRY %main (a: f32[100]) -> f32[100] {{\n  %a = f32[100]{{0}} parameter(0)\n"
        f"  %b = bf16[8,2]{{1,0}} constant({{...}})\n{body}\n}}\n"
    )


def all_reduce(groups, operand="%a"):
    return (
        f"ROOT %r = f32[100]{{0}} all-reduce({operand}), channel_id=1, replica_groups={groups}, "
        'use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(f)/psum" id=5}'
    )


@pytest.mark.parametrize(
    ("groups", "sent"),  # a sends 400 bytes: 2 (n-1)/n * 400 of a group of n
    [
        ("{}", 700),
        ("{{0,1,2,3,4,5,6,7}}", 700),
        ("{{0,1},{2,3},{4,5},{6,7}}", 400),
        ("{{0,2,4,6},{1,3,5,7}}", 600),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", 0),
        ("[1,8]<=[8]", 700),
        ("[4,2]<=[8]", 400),
        ("[2,4]<=[4,2]T(1,0)", 600),
        ("mesh['data'=4,'tensor'=2] {'data'}", 600),
        ("mesh['data'=4,'tensor'=2] {'tensor'}", 400),
        ("mesh['data'=4,'tensor'=2] {'data','tensor'}", 700),
    ],
)
def test_forms_of_replica_groups(groups, sent):
    for operand in ("%a", "f32[100]{0} %a", "a"):
        assert measure_hlo(module(all_reduce(groups, operand))).sent_bytes == sent


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", ("tensor",)),
        ("[4,2]<=[8]", ("tensor",)),
        ("[2,4]<=[4,2]T(1,0)", ("data",)),
        ("mesh['data'=4,'tensor'=2] {'data'}", ("data",)),
        ("[4,2]<=[2,4]T(1,0)", ("data",)),  # 0 and 4: two of the four along data
        ("{}", ("data", "tensor")),
    ],
)
def test_axes_are_those_along_which_members_differ(groups, axes):
    (found,) = measure_hlo(module(all_reduce(groups)), {"data": 4, "tensor": 2}).operations
    assert found.axes == axes


def test_groups_are_of_partition_ids():
    found = measure_hlo(module(all_reduce("{{1,6}}")))
    np.testing.assert_array_equal(found.sent_vector, [0, 400, 0, 0, 0, 0, 400, 0])
    strided = measure_hlo(module(all_reduce("{{0,4},{1,5,6}}")))
    np.testing.assert_array_equal(np.flatnonzero(strided.sent_vector), [0, 1, 4, 5, 6])


ALL = "replica_groups={}"


@pytest.mark.parametrize(
    ("line", "sent", "rounds"),
    [
        ("%r = f32[800] all-gather(%a), dimensions={0}, " + ALL, 7 * 400, 7),
        ("%r = f32[12] reduce-scatter(%a), to_apply=%add, " + ALL, 350, 7),
        ("%r = f32[100] all-to-all(%a), dimensions={0}, " + ALL, 350, 7),
        ("%r = (f32[100], bf16[8,2]) all-reduce(%a, %b), to_apply=%add, " + ALL, 756, 14),
        ("%r = (f32[100], /*index=1*/bf16[8,2]) all-to-all(%a, /*index=1*/%b), " + ALL, 378, 7),
        ("%r = f32[100] collective-broadcast(%a), " + ALL, 400, 7),
        ("%r = f32[100] ragged-all-to-all(%a, %a, %b, %b, %b, %b), " + ALL, 350, 7),
        ("%r = f32[100] collective-permute(%a), source_target_pairs={{0,1},{1,2},{3,3}}", 400, 1),
        ("%r = f32[100] collective-permute(%a), source_target_pairs={{3,3}}", 0, 0),
        ("%r = f32[100] collective-permute(%a), source_target_pairs={}", 0, 0),
    ],
)
def test_operations(line, sent, rounds):
    found = measure_hlo(module(line))
    assert (found.sent_bytes, found.rounds) == (sent, rounds)


def test_ranks_of_a_permutation_and_of_a_broadcast():
    permute = "%r = f32[100] collective-permute(%a), source_target_pairs={{0,1},{1,2},{3,3}}"
    found = measure_hlo(module(permute))
    np.testing.assert_array_equal(found.sent_vector, [400, 400, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(found.received_vector, [0, 400, 400, 0, 0, 0, 0, 0])
    chain = measure_hlo(module("%r = f32[100] collective-broadcast(%a), replica_groups={{2,0,5}}"))
    np.testing.assert_array_equal(chain.sent_vector, [400, 0, 400, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(chain.received_vector, [400, 0, 0, 0, 0, 400, 0, 0])


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        (("%s = f32[100] all-reduce-start(%a), to_apply=%add, " + ALL,
          "ROOT %r = f32[100] all-reduce-done(%s)"), 700),
        (("%s = (f32[100], f32[800]) all-gather-start(%a), dimensions={0}, " + ALL,
          "ROOT %r = f32[800] all-gather-done(%s)"), 2800),
        (("%s = (f32[100]{0}, f32[100]{0:T(256)S(1)}, u32[], u32[]) collective-permute-start(%a), "
          "source_target_pairs={{0,1},{1,0}}",
          "ROOT %r = f32[100] collective-permute-done(%s)"), 400),
        # two operands of one start (a GPU's combined all-gathers, a TPU's combined permutations)
        (("%s = ((f32[100]{0}, bf16[8,2]{1,0}), (f32[800]{0}, bf16[64,2]{1,0})) "
          "all-gather-start(%a, %b), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, "
          'use_global_device_ids=true, backend_config={"collective_backend_config":{}}',
          "ROOT %r = (f32[800], bf16[64,2]) all-gather-done(%s)"), 7 * 432),
        (("%s = ((f32[100], bf16[8,2]), (f32[100], bf16[8,2]), u32[]{:S(2)}) "
          "collective-permute-start(%a, %b), source_target_pairs={{0,1},{1,0}}",
          "ROOT %r = (f32[100], bf16[8,2]) collective-permute-done(%s)"), 432),
        # the short spelling of an asynchronous operation: start, update, done with its opcode
        (("%s = ((f32[100]), f32[12], u32[]) reduce-scatter-start(%a), to_apply=%add, "
          "dimensions={0}, " + ALL,
          "%u = ((f32[100]), f32[12], u32[]) reduce-scatter-update(%s)",
          "ROOT %r = f32[12] reduce-scatter-done(%u)"), 350),
        (("%s = ((f32[100]), f32[100], s32[]) all-to-all-start(%a), dimensions={0}, "
          "replica_groups={{0,1,2,3},{4,5,6,7}}",
          "ROOT %r = f32[100] all-to-all-done(%s)"), 300),
        # a permutation that XLA:GPU cut in two: the send counts, its operand and no token
        (("%t = token[] after-all()",
          "%v = (f32[100], u32[], token[]) recv(%t), channel_id=1, "
          "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}",
          "%s = (f32[100], u32[], token[]) send(%a, %t), channel_id=1, "
          'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}',
          "%d = token[] send-done(%s), channel_id=1",
          "ROOT %r = (f32[100], token[]) recv-done(%v), channel_id=1"), 400),
        (("%s = ((f32[100]), f32[12]) async-start(%a), calls=%wrapped",
          "%u = ((f32[100]), f32[12]) async-update(%s), calls=%wrapped",
          "ROOT %r = f32[12] async-done(%u), calls=%wrapped"), 350),
    ],
)  # fmt: skip
def test_an_asynchronous_pair_counts_its_start(lines, sent):
    wrapped = (
        "%wrapped (w: f32[100]) -> f32[12] {\n  %w = f32[100]{0} parameter(0)\n"
        "  ROOT %x = f32[12]{0} reduce-scatter(%w), to_apply=%add, replica_groups={}\n"
        '}, execution_thread="main"\n'
    )
    found = measure_hlo(module(*lines, others=wrapped))
    assert (found.sent_bytes, found.calls) == (sent, 1)


BODY = """
%body (p: f32[100]) -> f32[100] {
  %p = f32[100]{0} parameter(0)
  ROOT %x = f32[100]{0} all-reduce(%p), replica_groups={}, to_apply=%add
}

%test (q: f32[100]) -> pred[] {
  %q = f32[100]{0} parameter(0)
  ROOT %y = pred[] constant(true)
}

%twice (t: f32[100]) -> f32[100] {
  %t = f32[100]{0} parameter(0)
  %c = f32[100]{0} call(%t), to_apply=%body
  ROOT %d = f32[100]{0} fusion(%c), kind=kCustom, calls=%body
}
"""
WHILE = "ROOT %r = f32[100]{0} while(%a), condition=%test, body=%"


def test_loops_multiply_by_their_trip_count():
    known = ', backend_config={"known_init_step":{"init":"0"},"known_trip_count":{"n":"5"}}'
    assert measure_hlo(module(WHILE + "body" + known, others=BODY)).sent_bytes == 5 * 700
    assert measure_hlo(module(WHILE + "twice" + known, others=BODY)).sent_bytes == 10 * 700
    with pytest.raises(ValueError, match="'r' communicates and has no known trip count"):
        measure_hlo(module(WHILE + "body", others=BODY))
    assert measure_hlo(module(WHILE + "add", others=BODY)).sent_bytes == 0


@pytest.mark.parametrize(
    "branches",
    ["branch_computations={%body, %twice}", "true_computation=%twice, false_computation=%body"],
)
def test_of_branches_the_dearest(branches):
    found = measure_hlo(module(f"%r = f32[100] conditional(%a, %a, %a), {branches}", others=BODY))
    assert found.sent_bytes == 1400
    assert "undecided branch" in found.notes[0]


@pytest.mark.parametrize("devices", ["num_partitions=8", "replica_count=8"])
def test_the_number_of_devices_is_in_the_header(devices):
    found = measure_hlo(module(all_reduce("{}"), devices=devices))
    assert (dict(found.axes), found.sent_bytes) == ({"device": 8}, 700)
    alone = measure_hlo(module("ROOT %r = f32[100] add(%a, %a)", devices="x=1"))
    assert (dict(alone.axes), alone.sent_bytes) == ({"device": 1}, 0)


def test_a_channel_without_global_ids_connects_all_partitions():
    line = "%r = f32[100] all-reduce(%a), channel_id=1, replica_groups={{0}}, to_apply=%add"
    assert measure_hlo(module(line)).sent_bytes == 700


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (all_reduce("<new form>"), "replica_groups=<new form> is not understood"),
        (all_reduce("mesh['data'=4,'tensor'=2] {'data':(1)2}"), "replica_groups=mesh.* is not"),
        (all_reduce("[4,2]<=[8]P(1)"), "replica_groups=.* is not understood"),
        (all_reduce("{{0,1},{1,2}}"), "do not fit 8 devices"),
        (all_reduce("{{0,8}}"), "do not fit 8 devices"),
        (all_reduce("mesh['data'=4] {'data'}"), "do not fit 8 devices"),
        (all_reduce("mesh['data'=8] {'tensor'}"), "'tensor'.*the mesh has"),
        ("%r = f32[100] all-reduce(%a), to_apply=%add", "replica_groups=missing"),
        ("%r = f32[100] collective-permute(%a)", "source_target_pairs=missing"),
        ("%r = f32[100] collective-permute(%a), source_target_pairs={{0,1,2}}", "source_target"),
        ("%r = zz9[100] all-reduce(zz9[100] %y), replica_groups={}", "type 'zz9'"),
        ("%r = f32[100] all-reduce(%unseen), replica_groups={}", "'%unseen' is not understood"),
        ("%r = f32[100] all-reduce-twice(%a), replica_groups={}", "'all-reduce-twice'"),
        ("%r = f32[100] collective-hop(%a), replica_groups={}", "'collective-hop'"),
        ("%r f32[100] all-reduce(%a), replica_groups={}", "line is not understood: %r"),
        ("%r = (f32[100], token[]) send(%a, %t), channel_id=2", "'send' between devices"),
        ("%r = (f32[100], token[]) recv(%t), channel_id=2", "'recv' between devices"),
        (
            "%r = (f32[100], token[]) send(%a, %t), channel_id=2, frontend_attributes="
            '{_xla_send_recv_source_target_pairs={{0,1}},_xla_send_recv_validation="{{0,7}}"}',
            "send",
        ),
        ('%r = f32[100] custom-call(%a), custom_call_target="nccl_put"', "custom call"),
        ('%r = f32[100] custom-call(%a), custom_call_target="AsyncCollectiveStart"', "custom call"),
        (
            '%r = f32[100] custom-call(%a), custom_call_target="tpu_custom_call", backend_config='
            '{"custom_call_config": {"body": "x", "has_communication": true}}',
            "tpu_custom_call",
        ),
        ("%r = f32[12] fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1", "fusion that calls"),
        (
            "%r = f32[100] collective-permute(%a, %a, %b, %b), source_target_pairs={{0,1}}, "
            "slice_sizes={{50}}",
            "of slices, 'r'",
        ),
        ("%r = f32[100] call(%a), to_apply=%elsewhere", "'elsewhere' is called and not defined"),
        ("%r = f32[100] all-reduce(%a), channel_id=1, replica_groups={{0,1}}", "number replicas"),
    ],
)
def test_an_unknown_form_is_named(line, message):
    with pytest.raises(ValueError, match=message):
        measure_hlo(module(line))


def test_other_errors():
    with pytest.raises(ValueError, match="no ENTRY"):
        measure_hlo("HloModule m\n")
    with pytest.raises(ValueError, match="2 replicas of 4 partitions"):
        measure_hlo(module("", devices="replica_count=2, num_partitions=4"))
    with pytest.raises(ValueError, match="do not fit the program's 8 devices"):
        measure_hlo(module(""), {"data": 4})
    with pytest.raises(ValueError, match="keeps no payload marks"):
        _ = measure_hlo(module("")).payload_bytes
    assert measure_hlo(module("")).flops is None


def test_host_transfers_are_no_traffic_between_devices():
    line = "%r = (f32[100], token[]) send(%a, %t), channel_id=2, is_host_transfer=true"
    assert measure_hlo(module(line)).sent_bytes == 0


def test_a_kernel_without_communication_is_no_traffic():
    line = '%r = f32[100] custom-call(%a), custom_call_target="tpu_custom_call", backend_config={"custom_call_config": {"body": "x", "has_communication": false}}'
    assert measure_hlo(module(line)).sent_bytes == 0


def test_the_ranks_of_a_send():
    line = (
        "%s = (f32[100], u32[], token[]) send(f32[100]{0} %a, token[] %t), channel_id=1, "
        "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}"
    )
    found = measure_hlo(module(line))
    np.testing.assert_array_equal(found.sent_vector, [400, 400, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(found.received_vector, [0, 400, 400, 0, 0, 0, 0, 0])
