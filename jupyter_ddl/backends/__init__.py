"""Kinds of clusters: the interface in ``base``, and one module or package for each.

``jupyter_ddl.plugins`` finds them by name.
"""
