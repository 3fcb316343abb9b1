"""What ``%%distribute`` can do: one module per verb, derived from ``base.Verb``.

``jupyter_ddl.plugins`` finds them by name.
"""
