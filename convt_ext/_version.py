"""The version of the package: its only definition (setup.py and the binary read it)."""

__version__ = "0.1.0"
