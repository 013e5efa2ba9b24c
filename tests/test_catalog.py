import importlib
import subprocess
import sys

import pytest

import jddl
from jddl import catalog, components

SHELVES = list(components.SHELVES)


@pytest.mark.parametrize("shelf", SHELVES)
def test_every_component_is_documented_and_has_examples(shelf):
    for name in catalog.names(shelf):
        component = catalog.describe(shelf, name)
        assert not component.broken, component.broken
        assert component.examples, f"{shelf}/{name} has no EXAMPLES"
        assert component.doc.splitlines()[0].endswith("."), f"{shelf}/{name}: first line"
        for parameter in component.parameters:
            assert f"{parameter.name}:" in component.doc or parameter.shelf or parameter.name in (
                "n", "seed",
            ), f"{shelf}/{name}: {parameter.name} is not in the docstring"  # fmt: skip


def test_shelf_records_exist():
    for record in components.SHELVES.values():
        module, _, name = record.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type)


@pytest.mark.parametrize(
    ("shelf", "text", "words"),
    [
        ("compressors", "topkk(ratio=0.1)", "did you mean 'topk'"),
        ("compressors", "topk(ration=0.1)", "did you mean 'ratio'"),
        ("compressors", "topk(ratio='x')", "ratio is float"),
        ("compressors", "topk", "needs the argument 'ratio'"),
        ("compressors", "topk(ratio=2)", "ratio is in (0, 1]"),
        ("aggregators", "topk(ratio=0.1)", "'topk' is in compressors; here one of aggregators"),
        (
            "aggregators",
            "error_feedback(mean)",
            "'mean' is in aggregators; here one of compressors",
        ),
        ("aggregators", "mean(all_reduce=ring)", "a text is written in quotes"),
        ("optimizers", "sgdd(learning_rate=1.0)", "did you mean 'sgd'"),
        ("tasks", "os.system(x=1)", "standard library"),
        ("tasks", "my_pkg.make", "--allow_import=my_pkg"),
        ("nothing", "x", "unknown shelf"),
    ],
)
def test_a_mistake_is_named_with_its_alternatives(shelf, text, words):
    with pytest.raises(ValueError) as error:
        catalog.make(shelf, text, {"batch_size": 8})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_canonical_is_sorted_and_default_free():
    assert catalog.canonical("compressors", "int8(stochastic=False, block=64)") == "int8(block=64)"
    nested = "error_feedback(seed=0, compressor=int8(block=256))"
    assert catalog.canonical("aggregators", nested) == "error_feedback(int8())"
    assert catalog.canonical("compressors", "int8(stochastic=True)") == "int8(stochastic=True)"
    assert catalog.canonical("compressors", "topk(ratio=1)") == "topk(ratio=1.0)"
    assert catalog.canonical("network", "ethernet(gigabits=10)") == "ethernet()"
    assert catalog.canonical("optimizers", "sgd(learning_rate=0.1, momentum=None)") == (
        "sgd(learning_rate=0.1)"
    )


def test_the_shelf_attribute_is_the_factory_whatever_was_imported_first():
    from jddl import compressors

    assert callable(compressors.topk) and compressors.topk.__name__ == "topk"
    assert "topk" in dir(compressors)


NATURAL = '''
"""Doc."""
from jddl.records import Compressor

EXAMPLES = ("halve",)


def halve() -> Compressor:
    """Halves, to be seen."""
    return Compressor(lambda x: (), lambda x, s, k: (x / 2, s), lambda p, like, key=None: p, "sum")
'''


def test_a_file_on_a_users_shelf_is_a_component(tmp_path):
    folder = tmp_path / "compressors"
    folder.mkdir()
    (folder / "halve.py").write_text(NATURAL)
    (folder / "broken.py").write_text("def broken(:")
    catalog.add_shelf(tmp_path)
    try:
        assert {"halve", "broken", "topk"} <= set(catalog.names("compressors"))
        assert "halve" in catalog.examples("compressors")
        assert catalog.describe("compressors", "broken").summary.startswith("broken: ")
        config = {"aggregator": "compressed(halve)", "steps": 3, "runtime": "vmap"}
        halved = jddl.train(config).history[0]["loss"]
        assert halved != jddl.train(config | {"aggregator": "mean"}).history[0]["loss"]
        (folder / "halve.py").unlink()
        assert "halve" not in catalog.names("compressors")
    finally:
        catalog.remove_shelf(tmp_path)


def test_listing_imports_neither_jax_nor_numpy():
    code = (
        "import sys; from jddl.cli import main\n"
        "try: main(['list'])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert not {'jax', 'numpy', 'flax', 'optax'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "topk" in done.stdout and "adamw" in done.stdout


def test_importing_jddl_imports_no_jax():
    code = "import sys, jddl; assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("shelf", SHELVES)
def test_the_stub_is_current(shelf):
    """`make stubs` writes it."""
    assert (components.PACKAGE / shelf / "__init__.pyi").read_text() == catalog.stub(shelf)
