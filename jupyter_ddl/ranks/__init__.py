"""What runs in the zygote and in rank processes: the only place of user code."""
