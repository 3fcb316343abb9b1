"""Clusters of pods: dask-kubernetes' operator makes them, this package says what they are to be.

``pods``, ``manifest``, ``diagnosis`` and ``access`` are pure; ``api`` alone speaks to the API
server; ``backend`` is what the controller holds.  What runs inside the pods is ``scheduler_pod``.
"""
