"""Certify that a config trains what one device would: exact, summation order, lossy, or BUG."""

from __future__ import annotations

from typing import Any

from absl import flags

from jddl.cli._flags import new_flags, parse_with_config, text_or_json


def run(argv: list[str]) -> int:
    """`jddl verify --config=FILE [--config.FIELD=VALUE ...] [--steps=20]`; exit code 1 on a BUG."""
    values = new_flags("verify", __doc__)
    flags.DEFINE_integer("steps", 20, "Steps of each training.", flag_values=values)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=values)
    config, allow, rest = parse_with_config(values, argv)
    if rest:
        raise ValueError(f"verify takes no argument {rest[0]!r}; flags begin with --")
    if values.steps < 1:
        raise ValueError(f"--steps is at least 1, not {values.steps}")
    from jddl.studies.verify import verify

    certificate = verify(config, values.steps, allow)
    rows = {
        "ok": certificate.ok,
        "lossy": certificate.lossy,
        "steps": certificate.steps,
        "rows": [row._asdict() for row in certificate.rows],
    }
    text_or_json(values, rows, render(certificate))
    return 0 if certificate.ok else 1


def render(certificate: Any) -> str:
    """The certificate as a table, one line a leaf, and one line of verdict."""
    names = [row.name for row in certificate.rows]
    width = max(len(name) for name in names)
    lines, check = [], ""
    if certificate.lossy:
        lines.append(f"lossy by design; compared with one device at {certificate.lossy}")
    for row in certificate.rows:
        if row.check != check:
            check = row.check
            lines.append(f"{check}:")
        numbers = ""
        if check in ("one device", "explicit workers"):
            numbers = f"  float32 {row.float32:.1e}  float64 {row.float64:.1e}"
        cause = f"  {row.cause}" if row.cause else ""
        lines.append(f"  {row.name:{width}}  {row.verdict:15}{numbers}{cause}".rstrip())
    bugs = sum(row.verdict == "BUG" for row in certificate.rows)
    kind = "lossy by design, verified" if certificate.lossy else "verified"
    verdict = f"BUG: {bugs} of {len(names)} statements fail" if bugs else f"ok: {kind}"
    return "\n".join([*lines, f"{verdict} ({certificate.steps} steps)"])
