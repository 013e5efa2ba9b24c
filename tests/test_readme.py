"""The README's own loop, run as it is printed."""

import re
from pathlib import Path

import jddl

README = Path(jddl.__file__).parent.parent / "README.md"


def test_the_loop_in_the_readme_runs_and_learns():
    code = next(
        c for c in re.findall(r"```python\n(.*?)```", README.read_text(), re.S) if "shard_map" in c
    )
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert float(scope["loss"]) < 0.05
