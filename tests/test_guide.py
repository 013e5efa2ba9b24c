"""docs/bring_your_own.md: its blocks are written out and run as they are printed."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from flax import nnx

import jddl
from jddl.records import Context

GUIDE = (Path(jddl.__file__).parent.parent / "docs" / "bring_your_own.md").read_text()
FILES = {name: body for name, body in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.S)}
(COMMAND,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.S)


def printed(text, name):
    (value,) = re.findall(rf"^{name} +([\d.]+)$", text, re.M)
    return float(value)


def test_the_guides_own_module_trains_in_under_40_lines(tmp_path):
    lines = [x for x in (FILES["my_project.py"] + COMMAND).splitlines() if x.strip()]
    assert len(lines) < 40
    assert "error_feedback(topk" in COMMAND and "nnx.Module" in FILES["my_project.py"]
    (tmp_path / "my_project.py").write_text(FILES["my_project.py"])
    verb, *args = shlex.split(COMMAND.replace("\\\n", " "))
    assert verb == "jddl"
    done = subprocess.run(
        [sys.executable, "-m", "jddl", *args], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert printed(done.stdout, "test_accuracy") > 0.9
    assert printed(done.stdout, "payload_bytes") < 4 * (3 * 32 + 33) * 0.25  # a tenth, and places


def test_the_guides_own_module_is_verified(tmp_path, monkeypatch):
    """And code from outside may be verified at all: its name is allowed all the way."""
    (tmp_path / "my_project.py").write_text(FILES["my_project.py"])
    monkeypatch.syspath_prepend(tmp_path)
    config = {"task": "my_project.task", "model": "my_project.model", "mesh": "data=2"}
    config |= {"batch_size": 16, "runtime": "vmap"}
    assert jddl.verify(config, steps=2, allow_import=("my_project",)).ok


def test_the_guides_functions_train(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_functions.py").write_text(FILES["my_functions.py"])
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path(str(tmp_path / "my_functions.py"), run_name="__main__")
    assert printed(capsys.readouterr().out, "test accuracy") > 0.9


def test_the_guides_own_loop_trains(tmp_path):
    (tmp_path / "my_loop.py").write_text(FILES["my_loop.py"])
    done = subprocess.run(
        [sys.executable, "my_loop.py"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert printed(done.stdout, "accuracy") > 0.95


def test_a_module_with_statistics_or_random_streams_is_refused():
    with pytest.raises(ValueError, match=r"not BatchStat: write it as a file"):
        jddl.from_nnx(lambda rngs: nnx.BatchNorm(3, rngs=rngs))
    with pytest.raises(ValueError, match=r"not RngCount, RngKey"):
        jddl.from_nnx(lambda rngs: nnx.Dropout(0.5, rngs=rngs))


def test_a_part_that_asks_for_the_context_gets_it():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(2, 1, rngs=rngs)

        def __call__(self, x, ctx):
            return self.linear(x) * (2.0 if ctx.train else 1.0)

    def twice(w, x, ctx):
        return w * x * (2.0 if ctx.train else 1.0)

    x = jax.numpy.ones((3, 2))
    for model in (jddl.from_nnx(Net), jddl.from_functions(lambda key: jax.numpy.ones(2), twice)):
        params, stats = model.init(jax.random.key(0))
        once, again = (
            model.head(params["shared"], stats, x, Context(train=t))[0] for t in (False, True)
        )
        assert (again == 2 * once).all() and (once != 0).all()
