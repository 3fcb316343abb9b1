"""A run's cell as a program that needs no jupyter_ddl: ``%runs export RUN FILE --as KIND``.

``cell_text`` turns the cell into the program's last part, ``definitions`` and ``values`` what it
needs from the notebook into the part before, ``pieces`` has what takes our functions' place, and
``script`` puts them together.  ``forms`` are what a program is written as.
"""
