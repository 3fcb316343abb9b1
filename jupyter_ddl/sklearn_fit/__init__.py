"""Scikit-learn in the notebook: its parallel calls go to the cluster while a cell runs.

The only package that knows scikit-learn outside ranks; it is imported when it is used.
"""
