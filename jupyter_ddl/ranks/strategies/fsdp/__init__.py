"""``--strategy fsdp``: parameters cut into one part per rank; with ``--mesh tp=``, layers too."""
