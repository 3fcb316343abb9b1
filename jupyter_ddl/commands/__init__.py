"""What every face does: each command of ``%cluster``, ``%runs`` and ``jupyter ddl`` once.

A command is declared for :mod:`jupyter_ddl.grammar` beside the function that carries it out.
Magics and terminal parse the line, call the function and show its answer.
"""
