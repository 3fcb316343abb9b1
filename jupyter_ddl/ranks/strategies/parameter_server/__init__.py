"""``--strategy ps-sync`` and ``ps-async``: some ranks keep the parameters, the others train."""
