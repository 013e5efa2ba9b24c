"""Dumps of real gradients: what is in them, that training does not notice, and their bench."""

import json

import jax
import numpy as np
import pytest

import jddl
from jddl import gradients
from jddl.cli import main
from jddl.studies import bench_compressors

LINEAR = {"task": "least_squares", "model": "linear", "runtime": "vmap", "mesh": "data=4",
          "batch_size": 24, "steps": 6, "log_every": 2, "optimizer": "sgd(learning_rate=0.1)",
          "aggregator": "error_feedback(topk(ratio=0.25))"}  # fmt: skip


def run(tmp_path, name="run", dump=(1, 2), **more):
    result = jddl.train(LINEAR | more, tmp_path / name, dump_gradients=dump)
    return result, {step: gradients.load(gradients.file_of(tmp_path / name, step)) for step in dump}


def by_hand(kernel, bias, rows):
    """(1/rows) sum (<w, x> + b - y) (x, 1) of each of four workers' rows, in float64."""
    x, y = (rows[k].astype(np.float64) for k in ("inputs", "labels"))
    errors = (x @ kernel[:, 0] + bias[0] - y).reshape(4, -1)
    x = x.reshape(4, -1, x.shape[-1])
    return np.einsum("ni,nid->nd", errors, x) / errors.shape[1], errors.mean(1)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_dump_holds_each_workers_gradient_before_the_exchange(tmp_path, accumulate):
    _, dumps = run(tmp_path, accumulate=accumulate)
    task = jddl.validate(LINEAR).task
    kernel, bias = by_hand(np.zeros((8, 1)), np.zeros(1), task.batch(0, "train", 0))
    found = dumps[1]
    assert set(found) == {"shared.head.linear.kernel", "shared.head.linear.bias"}
    assert found["shared.head.linear.kernel"].shape == (4, 8, 1)
    np.testing.assert_allclose(
        found["shared.head.linear.kernel"][:, :, 0], kernel, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(found["shared.head.linear.bias"][:, 0], bias, rtol=1e-5, atol=1e-6)
    w = jddl.train(LINEAR | {"steps": 1, "accumulate": accumulate}).params["shared"]["head"][
        "linear"
    ]
    w = jax.tree.map(lambda x: np.asarray(x, np.float64), w)
    kernel, _ = by_hand(w["kernel"], w["bias"], task.batch(1, "train", 0))
    np.testing.assert_allclose(
        dumps[2]["shared.head.linear.kernel"][:, :, 0], kernel, rtol=1e-5, atol=1e-6
    )


def test_the_runtime_does_not_change_a_dump(tmp_path):
    _, one = run(tmp_path, "vmap", dump=(1,))
    _, other = run(tmp_path, "shard", dump=(1,), runtime="shard_map")
    for name, x in one[1].items():
        np.testing.assert_allclose(other[1][name], x, rtol=1e-6, atol=1e-7)


def test_training_is_bit_for_bit_what_it_is_without(tmp_path):
    with_dump, _ = run(tmp_path, "with")
    without = jddl.train(LINEAR, tmp_path / "without")
    files = [(tmp_path / n / "metrics.jsonl").read_bytes() for n in ("with", "without")]
    assert files[0] == files[1]
    for a, b in zip(*(jax.tree.leaves(r.params) for r in (with_dump, without))):
        np.testing.assert_array_equal(a, b)
    assert not (tmp_path / "without" / "gradients").exists()


@pytest.mark.parametrize(("steps", "words"), [
    ("7", "dump_gradients=7: the run takes steps 1 to 6"), ("0", "the run takes steps 1 to 6"),
    ("1,two", "'two' is none"), ("1.5", "'1.5' is none"), ("1,,2", "'' is none"),
])  # fmt: skip
def test_a_wrong_step_is_one_line_and_exit_code_2(tmp_path, capsys, steps, words):
    flags = ["--config=configs/least_squares.py", "--config.steps=6", f"--dump_gradients={steps}"]
    with pytest.raises(SystemExit) as done:
        main(["train", *flags, f"--workdir={tmp_path / 'run'}"])
    error = capsys.readouterr().err
    assert done.value.code == 2 and words in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_dump_needs_a_workdir():
    with pytest.raises(ValueError, match="dump_gradients needs a workdir"):
        jddl.train(LINEAR, dump_gradients=(1,))


def test_the_bench_reads_a_dump(tmp_path, capsys):
    flags = [f"--config.{k}={v}" for k, v in LINEAR.items()]
    with pytest.raises(SystemExit) as done:
        main(["train", "--config=configs/least_squares.py", *flags, "--dump_gradients=1,4",
              f"--workdir={tmp_path / 'run'}"])  # fmt: skip
    assert not done.value.code
    capsys.readouterr()
    path = gradients.file_of(tmp_path / "run", 4)
    with pytest.raises(SystemExit) as done:
        main(["bench", "compressors", "identity", "topk(ratio=0.34)", "--runs=2", "--json",
              f"--gradients={path}"])  # fmt: skip
    assert not done.value.code
    identity, topk = json.loads(capsys.readouterr().out)["rows"]
    assert identity["bytes"] == identity["payload_bytes"] == 4 * 9
    assert identity["error_gradient"] == identity["error_mean"] == 0
    whole = np.concatenate([x.reshape(4, -1) for x in gradients.load(path).values()], axis=1)
    kept = np.where(np.abs(whole) >= np.sort(np.abs(whole))[:, [-4]], whole, 0)  # 4 of 9
    each = np.linalg.norm(kept - whole, axis=1) / np.linalg.norm(whole, axis=1)
    mean = np.linalg.norm((kept - whole).mean(0)) / np.linalg.norm(whole.mean(0))
    assert topk["error_gradient"] == pytest.approx(each.mean(), rel=1e-5)
    assert topk["error_mean"] == pytest.approx(mean, rel=1e-5)


def test_a_compressor_of_leaves_gets_the_leaves(monkeypatch):
    seen = []
    plain = bench_compressors.catalog.make("compressors", "identity")

    def compress(x, state, key=None):
        seen.append(x.shape)
        return plain.compress(x, state, key)

    by_leaf = plain._replace(scope="leaf", compress=compress)
    monkeypatch.setattr(bench_compressors.catalog, "make", lambda *_: by_leaf)
    leaves = {"a": np.ones((2, 3, 4), np.float32), "b": np.ones((2, 5), np.float32)}
    (row,) = bench_compressors.gradient_rows(["x"], leaves, 1)
    assert set(seen) == {(3, 4), (5,)} and row["payload_bytes"] == 4 * 17
    assert row["error_gradient"] == 0


@pytest.mark.parametrize(("args", "words"), [
    (["compressors", "--gradients=nowhere.npz"], "nowhere.npz is no dump of gradients"),
    (["compressors", "--gradients=pyproject.toml"], "is no dump of gradients"),
    (["compressors", "--gradients=x.npz", "--sizes=1K"], "exclude each other"),
    (["collectives", "--gradients=x.npz"], "has no effect on collectives"),
])  # fmt: skip
def test_a_wrong_dump_is_named(args, words, capsys):
    with pytest.raises(SystemExit) as done:
        main(["bench", *args])
    error = capsys.readouterr().err
    assert done.value.code == 2 and words in error and error.count("\n") == 1


def test_steps_behind_a_checkpoint_are_not_left_out_silently(tmp_path):
    """Unless the run dumped them before it was interrupted."""
    with pytest.raises(ValueError, match="dump_gradients=10: the run goes on after step 20"):
        gradients.check_steps((10, 25), 20, 30, tmp_path)
    path = gradients.file_of(tmp_path, 10)
    path.parent.mkdir()
    path.write_bytes(b"")
    gradients.check_steps((10, 25), 20, 30, tmp_path)
