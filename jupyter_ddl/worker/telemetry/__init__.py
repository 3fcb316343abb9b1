"""What a worker measures of itself, of its ranks and of its GPUs."""
