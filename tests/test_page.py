"""The report in a real browser: what is drawn, not what is written."""

import os
import shutil
import subprocess

import pytest

import jddl
from jddl.report import page, tables
from jddl.runs import read_run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.browser
def test_table_and_curves_are_drawn(tmp_path):
    assert BROWSER, "no Chromium"
    base = {"task": "least_squares", "model": "linear", "runtime": "vmap", "steps": 30}
    rows, runs = [], []
    for aggregator in ("mean", "error_feedback(topk(ratio=0.3))"):
        jddl.train(base | {"aggregator": aggregator}, tmp_path / aggregator[:4])
        run = read_run(tmp_path / aggregator[:4])
        rows.append(tables.row(aggregator, [run]))
        runs.append((aggregator, run))
    target = tmp_path / "report.html"
    page.write_page(target, rows, runs)
    probe = (
        "<script>document.title = JSON.stringify({rows: document.querySelectorAll('#results tr').length,"
        "wide: document.querySelector('#results').getBoundingClientRect().width > 300,"
        "curves: [...document.querySelectorAll('[id^=curve-] path')]"
        ".filter(p => p.getBoundingClientRect().width > 50).length,"
        "differs: document.querySelector('#differences').innerText.includes('aggregator')})</script>"
    )
    (tmp_path / "probe.html").write_text(target.read_text().replace("</body>", probe + "</body>"))
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{tmp_path}/probe.html"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert '{"rows":3,"wide":true,"curves":6,"differs":true}' in done.stdout, done.stdout[:500]
