"""What a notebook has set in its process: read in the kernel, put into force in ranks.

One small object for each library, in ``LIBRARIES``.  None of them imports its library: a kernel
that has not imported it has set nothing in it, and a rank gets the settings when it imports it.
"""

from jupyter_ddl.settings.environment import Environment
from jupyter_ddl.settings.library import Library, put, put_back
from jupyter_ddl.settings.packages import Matplotlib, Numpy, Pandas, Sklearn, Torch
from jupyter_ddl.settings.python import Decimal, Locale, Logging, Recursion, Warnings

__all__ = ["LIBRARIES", "Library", "put", "put_back"]

LIBRARIES: tuple[Library, ...] = (
    Environment(),  # first: others look into it when they are imported
    Recursion(),
    Locale(),
    Logging(),
    Decimal(),
    Numpy(),
    Pandas(),
    Matplotlib(),
    Sklearn(),
    Torch(),
    Warnings(),  # last: the others may warn while they are set
)
