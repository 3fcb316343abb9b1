"""Drives runs: pure machines decide, one thin shell carries out over Dask what they decide.

``machine`` says what a machine is.  There are three: ``trials`` (search, map, rank groups),
``fits`` and ``cell_groups``.  ``queue`` has the trials that wait, also those that were lost;
``flights`` has those that are at a worker; ``shell`` and ``dispatcher`` talk to Dask.
"""
