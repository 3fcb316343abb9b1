"""Runs as TensorBoard reads them: scalars and hyper-parameters, written from the ledger.

What is written depends on the ledger alone, byte for byte: whoever writes goes on where the file
ends, whoever wrote before and however it ended.
"""
