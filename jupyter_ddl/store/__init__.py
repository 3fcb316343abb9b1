"""Where things lie and who is who on this host: paths, blobs, processes, packages, limits."""
