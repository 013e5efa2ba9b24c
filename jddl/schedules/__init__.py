"""The schedules shelf: one file, one factory, beside optax's own (see jddl.catalog)."""

from jddl.catalog import open_shelf

__getattr__, __dir__ = open_shelf(__name__)
