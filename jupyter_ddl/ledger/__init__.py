"""A run's record: its file, the one pure reducer that folds it, and what is drawn from the fold."""
