"""Each planted bug must come out as BUG, with the leaf it begins in and its likely cause."""

import pytest
from bugs import BUGS

from jddl.studies.verify import verify

STEPS = 4


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_named(name):
    config, make, words, leaves = BUGS[name]
    certificate = verify(config, STEPS, make=make)
    bugs = [row for row in certificate.rows if row.verdict == "BUG"]
    assert bugs and not certificate.ok
    assert any(words in row.cause for row in bugs), [(r.check, r.name, r.cause) for r in bugs]
    if leaves:
        begins = [r for r in bugs if r.check == "one device" and "follows" not in r.cause]
        assert [r.name for r in begins] == leaves


def test_without_a_bug_there_is_none():
    """The same small configs, unchanged: what the planted bugs are measured against."""
    seen = {tuple(sorted(config.items())) for config, *_ in BUGS.values()}
    for config in seen:
        certificate = verify(dict(config), 2)
        assert certificate.ok, certificate.rows


def test_there_are_at_least_twenty():
    causes = {words for _, _, words, _ in BUGS.values()}
    assert len(BUGS) >= 20 and len(causes) >= 10
