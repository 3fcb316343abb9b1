"""Which leading parts of pipelines candidates have in common.  Pure."""

from jupyter_ddl.prefix.chains import Chain, Link
from jupyter_ddl.prefix.plan import Plan, Prefix, Saving, plan

__all__ = ["Chain", "Link", "Plan", "Prefix", "Saving", "plan"]
