"""Strategies: how ``prepare`` makes a model ready for training on several ranks.

Importing this loads no torch.  ``registry`` finds a strategy by name, ``base`` says what one must
do, and every other module is a strategy or a part of one.
"""
