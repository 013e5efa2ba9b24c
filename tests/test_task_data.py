"""The data of single tasks against independent readings, closed forms and their error messages."""

import hashlib
import importlib
import sys
import types

import jax
import numpy as np
import pytest

import jddl
from jddl import catalog
from jddl.assembly import forward
from jddl.records import Context
from jddl.tasks._bytes_text import corpus, next_byte
from jddl.tasks._rows import from_disk
from tests.properties_tasks import clothes, inputs_of, rows, stdlib_files, write_idx

RNG = np.random.default_rng(5)


def make(spec, batch_size=24, shelf="tasks"):
    return catalog.make(shelf, spec, {"batch_size": batch_size})


def refused(spec, *words, batch_size=24):
    with pytest.raises(ValueError) as error:
        make(spec, batch_size)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


# Bytes


def test_the_hash_is_that_of_the_standard_library_without_tests_and_site_packages():
    lists = importlib.import_module("jddl.tasks.python_source")
    files = stdlib_files(lists.PACKAGES, lists.MODULES)
    names = [path.as_posix() for path in files]
    assert not any(w in n for n in names for w in ("/test/", "idlelib", "site-packages"))
    assert any(n.endswith("asyncio/base_events.py") for n in names)
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes() + b"\0")
    facts = make("python_source").facts
    assert facts["corpus_sha256"] == digest.hexdigest()
    assert facts["corpus_files"] == len(files)
    assert facts["corpus_bytes"] == sum(p.stat().st_size for p in files) + len(files)


def words(train=3000, held=300):
    """A corpus in which any 9 bytes stand at one place only, and its training text."""
    raw = [bytes(RNG.integers(1, 256, n, dtype=np.uint8)) for n in (train, held, held)]
    parts = dict(zip(("train", "validation", "test"), raw, strict=True))
    return corpus([parts]), raw[0] + b"\0"


def test_an_epoch_has_every_window_once_and_each_its_own_offset():
    found, text = words()
    task = next_byte(found, batch_size=7, length=8, held_out=10)
    size = (len(text) - 8) // 8
    starts = []
    for step in range(-(-2 * size // 7)):
        batch = task.batch(step, "train", 3)
        np.testing.assert_array_equal(batch["inputs"][:, 1:], batch["labels"][:, :-1])
        whole = np.concatenate([batch["inputs"], batch["labels"][:, -1:]], axis=1)
        starts += [text.index(bytes(row.astype(np.uint8))) for row in whole]
    first, second = starts[:size], starts[size : 2 * size]
    for epoch in (first, second):
        assert sorted(epoch) == list(range(min(epoch), len(text) - 8, 8))[:size]
    assert first != second
    offsets = {
        next_byte(found, size, 8, 1).batch(0, "train", s)["inputs"].tobytes() for s in range(9)
    }
    assert len(offsets) == 9


def test_held_out_windows_are_spread_and_no_more_than_asked_for():
    found, _ = words(held=8000)
    task = next_byte(found, batch_size=2, length=8, held_out=130)
    assert task.num_batches == {"validation": 3, "test": 3}  # 64, 64 and 2
    text = found.splits["test"].tobytes()
    starts = [text.index(bytes(row.astype(np.uint8))) for row in inputs_of(task, "test")]
    assert len(starts) == 130 and starts == sorted(starts)
    assert all(s % 8 == 0 for s in starts) and starts[-1] > 7900


def test_files_are_joined_in_the_order_of_their_paths(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_bytes(name.encode() * 200)
    task = make(f"text(glob='{tmp_path}/*.txt', length=4)")
    joined = b"".join(n * 200 + b"\0" for n in (b"a", b"b", b"c"))
    assert task.facts["corpus_sha256"] == hashlib.sha256(joined).hexdigest()
    assert task.facts["corpus_bytes"] == 603
    (tmp_path / "c.txt").write_bytes(b"d" * 400)  # an edited file is read again
    assert make(f"text(glob='{tmp_path}/*.txt', length=4)").facts["corpus_bytes"] == 803


def test_mistakes_about_text(tmp_path):
    refused(f"text(glob='{tmp_path}/*.md')", "no file matches")
    (tmp_path / "short.md").write_text("a few words")
    refused(f"text(glob='{tmp_path}/*.md')", "train part", "12 bytes", "length=128")
    refused("python_source(length=0)", "length")
    refused("python_source(length=1000000)", "too few", "smaller length")


BIGRAM = '''
"""Bytes from the byte before."""
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jddl.records import Model

EXAMPLES = ("bigram",)

def bigram(inputs: tuple[int, ...], outputs: int, vocabulary: int) -> Model:
    """One table of logits, started at 0."""
    assert vocabulary == outputs
    part = lambda params, stats, x, ctx: (x, stats, {})
    head = lambda params, stats, x, ctx: (params["table"][x], stats, {})
    init = lambda key: ({"shared": {"table": jnp.zeros((vocabulary, outputs))}, "blocks": ()}, {})
    return Model(init, lambda params: {"shared": {"table": P()}, "blocks": ()}, part, part, head)
'''


@pytest.fixture
def bigram(tmp_path):
    (tmp_path / "shelf" / "models").mkdir(parents=True)
    (tmp_path / "shelf" / "models" / "bigram.py").write_text(BIGRAM)
    catalog.add_shelf(tmp_path / "shelf")
    (tmp_path / "a.txt").write_bytes(b"abcd" * 500)
    yield {
        "task": f"text(glob='{tmp_path}/a.txt', length=16)", "model": "bigram",
        "runtime": "vmap", "optimizer": "sgd(learning_rate=100.0)", "batch_size": 10,
        "uneven_batch": "pad", "steps": 3, "log_every": 1,
    }  # fmt: skip
    catalog.remove_shelf(tmp_path / "shelf")


def test_bytes_are_trained_on_any_number_of_workers(bigram):
    """10 windows on 4 workers: the padding weighs nothing in any of its 16 bytes."""
    one, four = (jddl.train(bigram | {"mesh": f"data={n}"}) for n in (1, 4))
    assert abs(one.history[0]["loss"] - np.log(256)) < 1e-5
    assert one.history[0]["accuracy"] == 0  # nothing but byte 0 is guessed
    for a, b in zip(one.history, four.history, strict=True):
        assert all(abs(a[name] - b[name]) <= 1e-5 * max(1, abs(a[name])) for name in a)
    assert one.summary["test_accuracy"] > 0.9  # after a comes b
    whole = b"abcd" * 500 + b"\0"
    assert one.summary["corpus_sha256"] == hashlib.sha256(whole).hexdigest()
    assert one.summary["tokens_per_example"] == 16 and one.summary["bytes_per_token"] == 1.0
    assert jddl.verify(bigram | {"mesh": "data=4"}, steps=2).ok


# Images


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_read_whole(tmp_path, suffix):
    made = clothes(tmp_path, train=1212, test=501, suffix=suffix)
    task = make(f"fashion_mnist(dir='{tmp_path}')")
    assert task.num_batches == {"validation": 1, "test": 2}
    found = inputs_of(task, "test")
    assert found.dtype == np.float32 and found.max() == 1.0
    np.testing.assert_array_equal(np.round(found[..., 0] * 255), made["t10k"][0])
    assert len(task.batch(0, "validation", 0)["labels"]) == 101


def test_what_is_wrong_with_idx_files_is_said(tmp_path):
    spec = f"fashion_mnist(dir='{tmp_path}')"
    refused(spec, "dataset-fashion-mnist", "dir='...'", "train-images-idx3-ubyte.gz")
    clothes(tmp_path, suffix="")
    labels = tmp_path / "train-labels-idx1-ubyte"
    write_idx(labels, np.zeros(35, np.uint8))
    refused(spec, "36 images", "35")
    write_idx(labels, np.full(36, 10, np.uint8))
    refused(spec, "above 9")
    labels.write_bytes(labels.read_bytes()[:-1])
    refused(spec, "35 values", "(36,)")
    write_idx(labels, np.zeros((36, 1, 1), np.uint8))
    refused(spec, "magic number 0x00000801")
    labels.rename(labels.with_suffix(".gz"))
    refused(spec, "cannot be read")


def test_what_is_wrong_with_an_npz_is_said(tmp_path):
    path = tmp_path / "a.npz"
    refused(f"images(npz='{path}')", "no file", "numpy.savez")
    path.write_text("no archive")
    refused(f"images(npz='{path}')", "is no .npz file")
    good = {
        "train_images": np.zeros((9, 4, 4), np.uint8), "train_labels": np.arange(9),
        "test_images": np.zeros((3, 4, 4), np.uint8), "test_labels": np.arange(3),
    }  # fmt: skip
    for change, words in (
        ({"train_images": np.zeros((9, 4, 4), int)}, ("uint8 or floating", "int64[9, 4, 4]")),
        ({"train_labels": np.arange(8)}, ("integers [9]", "[8]")),
        ({"test_images": np.zeros((3, 5, 4), np.uint8)}, ("(4, 4, 1)", "(5, 4, 1)")),
        ({"test_labels": np.arange(3) - 1}, ("below 0",)),
    ):
        np.savez(path, **(good | change))
        refused(f"images(npz='{path}')", *words)
    np.savez(path, **{k: v for k, v in good.items() if k != "test_labels"})
    refused(f"images(npz='{path}')", "lacks test_labels")
    refused(f"images(npz='{path}', validation=1.0)", "in (0, 1)")


# Loaders that need another package


@pytest.mark.parametrize(
    ("spec", "package"),
    [("hugging_face(path='x')", "datasets"), ("tfds(name='mnist')", "tensorflow_datasets")],
)
def test_a_loader_says_what_to_install_and_what_to_prepare(spec, package, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, package, None)
    refused(spec, f"needs the package {package}", f"pip install 'jddl[{spec.split('(')[0]}]'")
    monkeypatch.setitem(sys.modules, package, types.ModuleType(package))  # nothing to call in it
    refused(spec, "nothing is downloaded", "where there is a network")


def test_what_is_wrong_with_a_prepared_set_is_said(monkeypatch, tmp_path):
    package = types.ModuleType("datasets")
    monkeypatch.setitem(sys.modules, "datasets", package)
    plain = rows(20)
    plain.features = {"image": None, "label": None, "text": None}
    spec = f"hugging_face(path='{tmp_path}')"
    for splits, words in (
        ({"train": rows(20)}, ("splits train and test", "it has train")),
        (rows(20), ("one split without a name",)),
        ({"train": plain, "test": plain}, ("no ClassLabel",)),
    ):
        package.load_from_disk = lambda path, splits=splits: splits
        refused(spec, *words)
    refused(spec.replace(")", ", image='img')"), "no column 'img'", "image, label, text")

    def tfrecords(split):
        raise NotImplementedError("random access")

    tensorflow = types.ModuleType("tensorflow_datasets")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", tensorflow)
    builder = types.SimpleNamespace(as_data_source=tfrecords)
    tensorflow.builder_from_directory = lambda path: builder
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "dataset_info.json").write_text("{}")
    spec = f"tfds(name='mnist', dir='{tmp_path}')"
    builder.info = types.SimpleNamespace(splits=["train", "test"])
    refused(spec, "file_format='array_record'")
    builder.info.splits.remove("test")
    refused(spec, "train and test are wanted; there are train")


def test_every_row_is_read_once_an_epoch_in_an_order_that_stays():
    sources = {"train": rows(40), "test": rows(4)}
    task = from_disk(sources, "image", "label", 7, batch_size=12)
    steps = [task.batch(s, "train", 1)["inputs"][:, 0, 0, 0] * 255 for s in range(6)]
    seen = np.round(np.concatenate(steps)).astype(int)
    held_out = {0, 10, 20, 30}
    for epoch in (seen[:36], seen[36:]):
        assert sorted(epoch) == [i for i in range(40) if i not in held_out]
    assert list(seen[:36]) != list(seen[36:])
    assert set(np.round(inputs_of(task, "validation")[:, 0, 0, 0] * 255)) == held_out
    # Another order after an upgrade of grain would make resumed runs differ from whole ones.
    assert list(seen[:12]) == GRAIN_ORDER


GRAIN_ORDER = [39, 8, 17, 36, 35, 9, 27, 23, 32, 26, 2, 6]


def test_rows_of_two_shapes_are_refused():
    train = rows(20)
    train[13] = {"image": np.zeros((3, 2), np.uint8), "label": 0}
    task = from_disk({"train": train, "test": rows(2)}, "image", "label", 7, 18)
    with pytest.raises(ValueError, match="one shape is wanted"):
        task.batch(0, "train", 0)
    with pytest.raises(ValueError, match="a row has image, label; image='picture'"):
        from_disk({"train": train, "test": train}, "picture", "label", 7, 4)


# Drawn data

LOGISTIC = "logistic(alpha={}, classes={}, shares={})"


@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_mixtures_have_the_mean_and_variance_of_a_dirichlet(alpha):
    """E q = 1/K and Var q = (1/K)(1 - 1/K) / (K alpha + 1), over 4,000 shares."""
    q = importlib.import_module("jddl.tasks.logistic")._mixtures(4000, 5, alpha)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    variance = 0.2 * 0.8 / (5 * alpha + 1)
    assert np.abs(q.mean(axis=0) - 0.2).max() < 5 * np.sqrt(variance / 4000)
    np.testing.assert_allclose(q.var(axis=0), variance, rtol=0.15)


def test_a_share_has_the_classes_of_its_mixture_and_held_out_rows_their_mean():
    q = importlib.import_module("jddl.tasks.logistic")._mixtures(4, 5, 0.5)
    task = make(LOGISTIC.format(0.5, 5, 4), batch_size=4 * 5000)
    labels = task.batch(2, "train", 0)["labels"].reshape(4, 5000)
    drawn = np.array([np.bincount(row, minlength=5) for row in labels])
    assert (np.abs(drawn - 5000 * q) <= 5 * np.sqrt(5000 * q * (1 - q)) + 1).all()
    assert np.abs(q[0] - q[1]).max() > 0.1  # so a swapped share would be seen
    mean, held = q.mean(axis=0), task.batch(0, "test", 0)["labels"]
    drawn = np.bincount(held, minlength=5)
    assert (np.abs(drawn - len(held) * mean) <= 5 * np.sqrt(len(held) * mean)).all()
    expected = np.mean([0.5 * np.abs(row - mean).sum() for row in q])
    np.testing.assert_allclose(task.facts["heterogeneity"], expected)


def test_the_limits_of_alpha():
    none = [make(LOGISTIC.format(a, 4, 4)).facts["heterogeneity"] for a in ("None", "1e999")]
    assert none == [0.0, 0.0]
    assert make(LOGISTIC.format("0.0", 4, 4)).facts["heterogeneity"] == 0.75
    assert 0 < make(LOGISTIC.format("1e6", 4, 4)).facts["heterogeneity"] < 0.01
    assert make(LOGISTIC.format("1e-9", 4, 4)).facts["heterogeneity"] >= 0.375  # one class a share
    refused(LOGISTIC.format("-1.0", 4, 4), "at least 0")
    refused(LOGISTIC.format("1.0", 4, 5), "batch_size=24", "shares=5", "20 does")


def test_bayes_rule_has_no_gradient_in_expectation():
    """W = mu, b = log q - |mu|^2 / 2 is the optimum: all means of (p - onehot) x are 0."""
    task = make("logistic(alpha=0.7, classes=4, shares=2, dim=3)", batch_size=40_000)
    shelf = importlib.import_module("jddl.tasks.logistic")
    mu, q = shelf._means(3, 4, 2.0), shelf._mixtures(2, 4, 0.7).mean(axis=0)
    batch = task.batch(0, "train", 0)
    x = np.column_stack([batch["inputs"], np.ones(40_000)])
    logits = x @ np.vstack([mu.T, np.log(q) - (mu**2).sum(axis=1) / 2])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    each = (p - np.eye(4)[batch["labels"]])[:, :, None] * x[:, None]  # [rows, classes, dim + 1]
    error = each.std(axis=0) / np.sqrt(40_000)
    assert (np.abs(each.mean(axis=0)) < 5 * error).all()
    expected = -np.log(p[np.arange(40_000), batch["labels"]]).mean()
    total, weight = task.loss(logits, batch, Context())
    np.testing.assert_allclose(total / weight, expected, rtol=1e-4)


def test_clicks_follow_the_planted_model():
    task = make("recsys(vocabulary=4000, fields=4, spread=2.0)", batch_size=50_000)
    batch = task.batch(1, "train", 0)
    planted = importlib.import_module("jddl.tasks.recsys")._planted(4000, 4, 2.0)
    p = 1 / (1 + np.exp(-planted[batch["inputs"]].sum(axis=1)))
    assert p.min() < 0.1 and p.max() > 0.9
    for part in (p < 0.3, (0.3 <= p) & (p < 0.7), 0.7 <= p):
        error = np.sqrt((p * (1 - p))[part].sum())
        assert abs((batch["labels"] - p)[part].sum()) < 5 * error
    refused("recsys(vocabulary=10, fields=3)", "multiple of fields")
    refused("recsys(exponent=-1.0)", "at least 0")


def test_the_gradient_of_a_large_table_is_sparse():
    task = make("recsys(vocabulary=4000)", batch_size=32)
    given = {"inputs": (8,), "outputs": 2, "vocabulary": task.facts["vocabulary"]}
    model = catalog.make("models", "embedding_bag", given)
    params, stats = jax.jit(model.init)(jax.random.key(0))
    batch = task.batch(0, "train", 0)

    def loss(params):
        return task.loss(
            forward(model, params, stats, batch["inputs"], Context())[0], batch, Context()
        )[0]

    table = jax.jit(jax.grad(loss))(params)["shared"]["embed"]["table"]
    assert table.shape == (4000, 16)
    touched = set(np.flatnonzero(np.abs(table).sum(axis=1)))
    assert touched == set(batch["inputs"].ravel()) and len(touched) < 256


def test_the_vocabulary_is_a_fact_of_the_task():
    base = {"mesh": "data=1", "runtime": "vmap", "batch_size": 32}
    with pytest.raises(ValueError, match="vocabulary is 4000 in this run"):
        wrong = {"task": "recsys(vocabulary=4000)", "model": "embedding_bag(vocabulary=40)"}
        jddl.validate(base | wrong)
    with pytest.raises(ValueError, match="takes a list of ids"):
        jddl.validate(base | {"model": "embedding_bag(vocabulary=40)"})
    with pytest.raises(ValueError, match="needs the argument 'vocabulary'"):
        jddl.validate(base | {"model": "embedding_bag"})
