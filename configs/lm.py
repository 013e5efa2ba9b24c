"""A language model on the source of Python's standard library, 1 M parameters, Llama style.

    jddl train --config=configs/lm.py --workdir=runs/lm

About 5 minutes on two CPU cores; below 2.6 validation bits per byte (2.39, 95 % interval over 3
seeds up to 2.48: experiments/language_model).
"""

from jddl import default_config


def get_config():
    """AdamW with warm-up and cosine decay, global batch of 32 windows of 128 bytes."""
    config = default_config()
    config.task = "python_source(length=128)"
    config.model = (
        "transformer(heads=5, hidden=432, kv_heads=1, layers=4, preset='llama_debug', width=160)"
    )
    config.mesh = "data=2"
    config.optimizer = (
        "adamw(learning_rate=warmup_cosine_decay_schedule(decay_steps=300, end_value=0.0001, "
        "init_value=0.0, peak_value=0.003, warmup_steps=20), weight_decay=0.1)"
    )
    config.clip_norm = 1.0
    config.batch_size = 32
    config.steps = 300
    config.log_every = 20
    config.save_every = 100
    return config
