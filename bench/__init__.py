"""Measured reports of the speed goals: ``python -m bench``.  Never a test."""
