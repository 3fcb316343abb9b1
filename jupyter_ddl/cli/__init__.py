"""``jupyter ddl``: clusters and runs from a terminal."""
