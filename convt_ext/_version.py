"""The version of the package: the only place that says it (setup.py and the binary take it from here)."""

__version__ = "0.1.0"
