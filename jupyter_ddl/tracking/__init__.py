"""Runs in the formats of other tools, written from the ledger."""
