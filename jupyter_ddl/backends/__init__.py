"""Kinds of clusters: the interface, the registry, and one module or package for each."""
