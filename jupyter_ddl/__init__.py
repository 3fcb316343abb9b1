"""Scale a notebook cell by changing only its first line."""

__version__ = "0.1.0"
