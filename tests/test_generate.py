"""`jddl generate`: a model that learned a periodic text continues it."""

import pytest

import jddl
from jddl.cli import main
from jddl.studies.generate import generate

PERIOD = "abcdefgh\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    for index in range(4):
        (folder / f"{index}.txt").write_text(PERIOD * 200)
    config = {
        "task": f"text(glob='{folder}/*.txt', length=24)",
        "model": "transformer(layers=1, preset='llama_debug', width=32)",
        "optimizer": "adamw(learning_rate=0.01)",
        "mesh": "data=2",
        "batch_size": 16,
        "steps": 60,
        "save_every": 30,
    }
    jddl.train(config, folder / "run")
    return folder / "run"


def test_the_text_goes_on_beyond_a_window(run):
    more = generate(run, "abcde", length=40, temperature=0.0)
    assert ("abcde" + more.decode()) == (PERIOD * 5)[:45]


def test_draws_are_those_of_the_seed(run):
    one, two, three = (generate(run, "abc", 60, temperature=3.0, seed=s) for s in (0, 0, 1))
    assert one == two != three


def test_on_the_command_line(run, capsys):
    with pytest.raises(SystemExit) as done:
        main(["generate", f"--run={run}", "--prompt=cd", "--bytes=6", "--temperature=0"])
    assert done.value.code == 0 and capsys.readouterr().out == "cdefgh\na\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--run=nowhere"], "nowhere holds no run"),
        (["--prompt="], "say --run=DIR and --prompt=TEXT"),
        (["--temperature=-1"], "temperature"),
        (["more"], "takes no argument 'more'"),
    ],
)
def test_a_mistake_is_one_line(run, change, words, capsys):
    with pytest.raises(SystemExit) as done:
        main(["generate", f"--run={run}", "--prompt=cd", *change])
    assert done.value.code == 2
    assert words in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_what_is_no_text_or_has_no_checkpoint_is_named(tmp_path):
    plain = {"task": "least_squares", "model": "linear", "runtime": "vmap", "steps": 1}
    jddl.train(plain, tmp_path / "digits")
    with pytest.raises(ValueError, match="is not text"):
        generate(tmp_path / "digits", "a")
    (tmp_path / "a.txt").write_text("abcdefgh" * 60)
    text = {"task": f"text(glob='{tmp_path}/*.txt', length=8)", "batch_size": 8, "steps": 1}
    model = {"model": "transformer(layers=0, width=8)", "mesh": "data=1"}
    jddl.train({**text, **model}, tmp_path / "unsaved")
    with pytest.raises(ValueError, match="no checkpoint"):
        generate(tmp_path / "unsaved", "a")
