"""Shipped with the wheel as jddl._shipped.configs."""
