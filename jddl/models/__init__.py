"""The models shelf: one file, one factory (see jddl.catalog)."""

from jddl.catalog import open_shelf

__getattr__, __dir__ = open_shelf(__name__)
