"""`python -m jddl` is the console script."""

from jddl.cli import main

main()
