"""Where things lie on disk: the home directory, run directories, blobs by content."""
