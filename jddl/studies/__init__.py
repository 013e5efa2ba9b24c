"""Studies over many runs: compare (and later verify, taxonomy, reproduce)."""
