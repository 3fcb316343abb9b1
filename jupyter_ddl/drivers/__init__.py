"""One driver per verb: which trial runs next, what its events mean, when the run is over."""
