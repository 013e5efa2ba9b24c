"""Every package of jddl, and configs/ and experiments/ as jddl._shipped, found at build time."""

from setuptools import find_namespace_packages, setup

CACHES = ["*__pycache__*"]
shipped = {
    f"jddl._shipped.{name}": name.replace(".", "/")
    for name in find_namespace_packages(include=["configs*", "experiments*"], exclude=CACHES)
}
setup(
    packages=[*find_namespace_packages(include=["jddl", "jddl.*"], exclude=CACHES), *shipped],
    package_dir={"jddl": "jddl", **shipped},
)
