"""The README's own loop, run as it is printed."""

import re
from pathlib import Path

import jddl

README = Path(jddl.__file__).parent.parent / "README.md"


def test_the_loop_in_the_readme_runs_and_learns():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    (ours,) = (block for block in blocks if "shard_map" in block)
    assert len([line for line in ours.splitlines() if line.strip()]) == 10  # "in ten lines"
    scope = {}
    exec(compile("".join(blocks), "README.md", "exec"), scope)
    assert float(scope["loss"](scope["w"], scope["x"], scope["y"])) < 0.05
