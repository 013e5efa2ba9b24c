"""The ring all-reduce meets the lower bound on bytes."""

from jddl import accounting, train
from jddl.experiment import validate
from jddl.loop import compiled_step
from jddl.studies.reproduce import Claim, Expected

N, PARAMETERS = 8, 8 * 1120 + 10  # mlp on digits: 64*64+64 + 64*64+64 + 64*10+10


def run(folder, quick):
    """Bytes and rounds of the compiled training step, over the gradient's bytes."""
    config = dict(validate(folder / "config.py").config) | ({"steps": 5} if quick else {})
    summary = train(config).summary
    compiled = accounting.measure_hlo(compiled_step(validate(config)))
    assert compiled.sent_bytes == summary["sent_bytes"]
    padded = -(-PARAMETERS // N) * N  # the last chunk is filled up
    return {
        "sent bytes / gradient bytes": compiled.sent_bytes / (4 * padded),
        "rounds": compiled.rounds,
    }


CLAIM = Claim(
    source="Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009",
    statement="A ring all-reduce sends 2 (n-1)/n of the vector per worker in 2 (n-1) rounds",
    kind="measured bytes",
    expected={"sent bytes / gradient bytes": Expected(2 * 7 / 8), "rounds": Expected(14)},
    run=run,
    seeds=(0,),
)
