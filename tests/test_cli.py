"""The command line as a user sees it: whole processes."""

import json
import re
import subprocess
import sys

import pytest

from jddl.cli import main
from jddl.runs import read_run

QUICK = ["--config=configs/least_squares.py", "--config.steps=20"]


def jddl(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "jddl", *map(str, args)], capture_output=True, text=True, cwd=cwd
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trian"], "did you mean 'train'"),
        (["train"], "say --config=FILE"),
        (["train", "--config=configs/none.py", "--workdir=x"], "shipped: configs/"),
        (["train", *QUICK], "say --workdir"),
        (["train", *QUICK, "--config.modle=mlp", "--workdir=x"], "did you mean 'model'"),
        (["train", *QUICK, "--config.aggregator=meen", "--workdir=x"], "did you mean 'mean'"),
        (["train", *QUICK, "--config.steps=many", "--workdir=x"], "--config.steps=many"),
        (["train", *QUICK, "--config.mesh=data=7", "--workdir=x"], "does not divide"),
        (["train", *QUICK, "--config.mesh=dta=8", "--workdir=x"], "unknown axis 'dta'"),
        (["train", *QUICK, "--config.task=os.system(x=1)", "--workdir=x"], "standard library"),
        (["train", *QUICK, "--config.task=my_pkg.make", "--workdir=x"], "--allow_import=my_pkg"),
        (["train", *QUICK, "--workdri=x"], "workdri"),
        (["train", *QUICK, "--config.all_reduce=ring(n=3)", "--workdir=x"], "n is 8 in this run"),
        (["train", *QUICK, "--config.aggregator=mean(axis='model')", "--workdir=x"], "model"),
        (["train", "--config=pyproject.toml", "--workdir=x"], "a config is a .py file"),
        (["train", *QUICK, "--config.aggregator=compressed(int8)", "--config.all_reduce=ring",
          "--workdir=x"], "has no effect"),
        (["compare"], "say --config=FILE"),
        (["compare", "nowhere"], "holds no run"),
        (["report"], "say which runs"),
        (["describe", "topkk"], "did you mean 'topk'"),
        (["list", "compresors"], "did you mean 'compressors'"),
        (["list", "--jsn"], "unknown flag"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(args, words):
    done = jddl(*args)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.mark.smoke
def test_train_compare_report(tmp_path):
    run = tmp_path / "run"
    done = jddl("train", *QUICK, f"--workdir={run}")
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 20 and summary["runtime"] == "vmap"
    before = (run / "metrics.jsonl").read_bytes()
    again = jddl("train", *QUICK, f"--workdir={run}")
    assert again.returncode == 2 and "holds this run, finished" in again.stderr
    other = jddl("train", *QUICK, "--config.seed=1", f"--workdir={run}")
    assert other.returncode == 2 and "another run (seed" in other.stderr
    assert (run / "metrics.jsonl").read_bytes() == before
    page = tmp_path / "page.html"
    assert jddl("report", run, f"--out={page}").returncode == 0
    addresses = set(re.findall(r"https?://[\w.]+", page.read_text()))
    assert addresses <= {"http://www.w3.org"}  # names of XML dialects; nothing is fetched


def test_compare_a_product_with_a_cell_without_effect_resumes(tmp_path):
    args = ["compare", *QUICK, "--sweep=aggregator=mean;error_feedback(topk(ratio=0.2))",
            "--sweep=all_reduce=native;ring", "--seeds=0,1", f"--workdir={tmp_path}"]  # fmt: skip
    first = jddl(*args)
    assert first.returncode == 0, first.stderr
    assert "n/a: " in first.stdout and "has no effect" in first.stdout and "±" in first.stdout
    folders = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("*/summary.json")}
    second = jddl(*args, "--json")
    assert folders == {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("*/summary.json")}
    rows = json.loads(second.stdout)
    assert len(rows) == 4 and sum("reason" in r for r in rows) == 1
    assert len(list(tmp_path.glob("*/summary.json"))) == 6


def test_flagfile_and_config_json(tmp_path):
    flagfile = tmp_path / "flags.txt"
    flagfile.write_text(
        f"--config=configs/least_squares.py\n--config.steps=7\n--workdir={tmp_path}/a\n"
    )
    assert jddl("train", f"--flagfile={flagfile}").returncode == 0
    config = tmp_path / "a" / "config.json"
    assert json.loads(config.read_text())["steps"] == 7
    assert jddl("train", f"--config={config}", f"--workdir={tmp_path}/b").returncode == 0
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (
        tmp_path / "b/metrics.jsonl"
    ).read_bytes()


def test_a_component_by_import_path(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from jddl.compressors import identity\ndef half() -> object:\n    return identity()\n"
    )
    args = ["train", *QUICK, "--config.aggregator=compressed(mine.half)", "--workdir=run"]
    assert jddl(*args, cwd=tmp_path).returncode == 2
    done = jddl(*args, "--allow_import=mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    replay = jddl("train", "--config=run/config.json", "--workdir=again", cwd=tmp_path)
    assert replay.returncode == 2 and "--allow_import=mine" in replay.stderr


@pytest.mark.smoke
def test_doctor():
    done = jddl("doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["versions"]["jax"].startswith("0.1")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["compare", QUICK[0], "--workdir=W", "--sweep=seed=0;1"], "seed is not swept"),
        (["compare", QUICK[0], "--workdir=W", "--seeds=1,1"], "names one twice"),
        (["compare", "RUN", "--sweep=all_reduce=ring"], "needs --config"),
        (
            ["train", QUICK[0], "--workdir=W", "--config.aggregator=mean(axis=[])"],
            "at least one mesh",
        ),
        (
            ["train", QUICK[0], "--workdir=W", "--config.task=digits(batch_size=8)"],
            "is 240 in this run",
        ),
        (
            ["train", QUICK[0], "--workdir=W", "--config.cluster=ethernet(n=64)"],
            "n is 8 in this run",
        ),
        (
            ["train", QUICK[0], "--workdir=W", "--config.model=mlp(hidden=0)"],
            "hidden is at least 1",
        ),
        (["train", QUICK[0], "--workdir=W", "--config.model=mlp(outputs=3)"], "outputs is 1 in"),
        (["train", QUICK[0], "--workdir=W", "--config.seed=99999999999999"], "seed is from 0"),
        (["train", QUICK[0], "--workdir=W", "--config.all_reduce=rng"], "all_reduce:"),
        (
            ["train", QUICK[0], "--workdir=W", "--config.optimizer=sgd(learning_rate=[1])"],
            "cannot be",
        ),
        (["train", QUICK[0], "--workdir=W", "--config.mesh=data=²"], "write it as"),
        (["draw", "collective", "ring", "--out=/proc/nope/x.png"], "nope/x.png"),
        (["reproduce", "crosover"], "did you mean 'crossover'"),
        (["bench", "colectives"], "collectives"),
    ],
)
def test_what_a_reader_broke_is_one_line(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    argv = [a.replace("=W", f"={tmp_path / 'w'}").replace("RUN", str(tmp_path)) for a in argv]
    with pytest.raises(SystemExit) as stop:
        main(argv)
    errors = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2 and len(errors) == 1 and words in errors[0]
    assert not (tmp_path / "w").exists()


def test_a_damaged_run_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text("hello")
    for content, words in (("hello", "metrics.jsonl is damaged"), ("", "summary.json is damaged")):
        (tmp_path / "metrics.jsonl").write_text(content)
        with pytest.raises(ValueError, match=words):
            read_run(tmp_path)


def test_a_cell_stands_once(tmp_path):
    argv = ["compare", QUICK[0], f"--workdir={tmp_path / 'w'}", "--sweep=all_reduce=ring;ring()"]
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2 and not (tmp_path / "w").exists()
