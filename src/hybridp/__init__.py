"""Differential privacy when people do not all trust you the same way."""

__version__ = "0.1.0"
