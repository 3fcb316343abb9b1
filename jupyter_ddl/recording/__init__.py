"""Recordings: a run as one file, and the live view that plays it without any cluster.

``write`` makes a file of a run's ledger, ``read`` reads it again, ``timeline`` folds it with the
one reducer into what a view shows at each moment, and ``show`` and ``page`` hand that to the
modules of ``views/live``: in a notebook, and in a page that needs neither kernel nor server.
"""
