"""Shipped with the wheel as jddl._shipped.experiments."""
