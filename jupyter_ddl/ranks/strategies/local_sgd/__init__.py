"""``--strategy local-sgd`` and ``diloco``: ranks step alone, and meet every so many steps."""
