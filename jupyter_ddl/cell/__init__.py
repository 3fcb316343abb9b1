"""From the cell and the notebook's namespace to a program: what verbs compile their cells with.

On the path of a cell this comes between the magics and the client, in the kernel.  This file
imports nothing, because a rank imports :mod:`jupyter_ddl.cell.tensors` while it unpickles.
"""
