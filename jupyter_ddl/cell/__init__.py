"""From the cell and the notebook's namespace to a program: what verbs compile their cells with.

A verb's ``compile`` calls ``source`` (the cell as plain Python), ``names`` (its free names) and
``program``, where :meth:`CellParts.program` makes the program; ``draft`` makes a run of that.

On the path of a cell this comes between the magics and the client, in the kernel.  This file
imports nothing, because a rank imports :mod:`jupyter_ddl.cell.tensors` while it unpickles.
"""
