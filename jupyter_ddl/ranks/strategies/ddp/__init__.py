"""``--strategy ddp``: a whole copy of the model on every rank, gradients averaged by torch."""
