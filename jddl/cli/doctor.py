"""Say what this machine has: devices, versions, cores; --check trains and measures."""

from __future__ import annotations

import json
import time

from absl import flags

from jddl.cli._flags import new_flags, parse


def run(argv: list[str]) -> int:
    """`jddl doctor [--check] [--json]`; exit code 1 when a check fails."""
    values = new_flags("doctor", __doc__)
    flags.DEFINE_bool("check", False, "Train, measure, compare (minutes).", flag_values=values)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    rest = parse(values, argv)
    if rest:
        raise ValueError(f"doctor takes no argument {rest[0]!r}")
    from jddl.runs import environment
    from jddl.runtimes._devices import ensure_devices

    if values.check:
        ensure_devices(8, at_most=True)
    report = environment()
    if values.check:
        report["checks"] = _checks()
    ok = all(c["ok"] for c in report.get("checks", []))
    if values.json:
        print(json.dumps(report, indent=1))
        return 0 if ok else 1
    for name, value in report.items():
        if name not in ("versions", "checks"):
            print(f"{name:10} {value}")
    print("versions   " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()))
    for check in report.get("checks", []):
        print(f"{'ok  ' if check['ok'] else 'FAIL'} {check['name']}: {check['found']}")
    return 0 if ok else 1


def _checks() -> list[dict[str, object]]:
    import jax
    import numpy as np

    import jddl
    from jddl import accounting
    from jddl.loop import compiled_step

    jax.config.update("jax_default_matmul_precision", "highest")
    n = jax.device_count()
    base = dict(jddl.validate("configs/quickstart.py").config)
    base |= {"mesh": f"data={n}", "steps": 50, "batch_size": 240 // n * n or n}
    checks: list[dict[str, object]] = []
    results = {}
    for algorithm in ("native", "ring", "recursive_doubling", "direct"):
        started = time.perf_counter()
        results[algorithm] = jddl.train(base | {"all_reduce": algorithm})
        seconds = time.perf_counter() - started
        apart = max(
            float(np.abs(np.asarray(a) - np.asarray(b)).max())
            for a, b in zip(
                jax.tree.leaves(results["native"].params),
                jax.tree.leaves(results[algorithm].params),
                strict=True,
            )
        )
        found = f"{apart:.1e} from native after 50 steps, {seconds:.1f} s"
        checks.append({"name": f"train, {algorithm}", "ok": apart <= 1e-5, "found": found})
    experiment = jddl.validate(base | {"all_reduce": "ring"})
    hlo = accounting.measure_hlo(compiled_step(experiment))
    traced = results["ring"].summary["sent_bytes"]
    same = hlo.sent_bytes == traced
    found = f"{traced} traced, {hlo.sent_bytes} compiled"
    checks.append({"name": "bytes of the ring step, jaxpr = HLO", "ok": same, "found": found})
    for aggregator in ("mean", "error_feedback(topk(ratio=0.01))"):
        certificate = jddl.verify(base | {"aggregator": aggregator}, steps=10)
        bugs = [row for row in certificate.rows if row.verdict == "BUG"]
        found = f"{len(certificate.rows) - len(bugs)} of {len(certificate.rows)} statements hold"
        checks.append({"name": f"verify, {aggregator}", "ok": certificate.ok, "found": found})
    return checks
