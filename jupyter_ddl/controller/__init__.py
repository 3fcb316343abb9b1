"""The process that owns one cluster and drives its runs."""
