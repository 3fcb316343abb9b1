"""Kills of everything that a search and a training need, again and again: ``make soak``."""
