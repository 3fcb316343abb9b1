"""Strategies: how ``prepare`` makes a model ready for training on several ranks.

Importing this loads no torch.  ``base`` says what a strategy must do, every other module is one
or a part of one; ``jupyter_ddl.plugins`` finds them by name.
"""
