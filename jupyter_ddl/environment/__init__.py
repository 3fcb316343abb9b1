"""The environment that cells run in: what is asked for, what there is, and whether they agree."""
