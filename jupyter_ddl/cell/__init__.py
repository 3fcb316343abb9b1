"""From a magic's line, the cell and the notebook's namespace to a program and a verb spec.

On the path of a cell this comes between the magics and the client, in the kernel.  The
entry points are :func:`jupyter_ddl.cell.compile.compile_search` and ``compile_map``.  This file
imports nothing, because a rank imports :mod:`jupyter_ddl.cell.tensors` while it unpickles.
"""
