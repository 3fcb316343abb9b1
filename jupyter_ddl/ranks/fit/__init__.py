"""Scikit-learn's fits in a rank: prefixes remembered, everything else scikit-learn's own."""
