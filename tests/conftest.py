"""Eight simulated devices for the whole suite, made before the backend starts."""

import jax

jax.config.update("jax_num_cpu_devices", 8)


def pytest_terminal_summary(terminalreporter):
    """Print how many planted bugs `verify` was tried with, and how many it named."""
    done = {
        outcome: [r for r in terminalreporter.stats.get(outcome, []) if _planted(r)]
        for outcome in ("passed", "failed")
    }
    named, tried = len(done["passed"]), sum(map(len, done.values()))
    if tried:
        terminalreporter.write_line(f"planted bugs: {named} of {tried} named")


def _planted(report):
    return "test_a_planted_bug_is_named" in report.nodeid and report.when == "call"
