"""``python -m jupyter_ddl.cli``: the same as ``jupyter ddl``."""

import sys

from jupyter_ddl.cli.main import main

sys.exit(main())
