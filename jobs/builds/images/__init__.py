"""Images of jobs on Kubernetes: their content, and how they are built (docs/decisions/0023).

A job's image is built on others, each named by the hash of all its inputs::

    base  ->  runtime  ->  environment (if there are requirements)  ->  job (the code)

``plan.py`` is pure and computes the list; the program ``worker.py`` builds the images that the registry lacks. For the
runtime and the environment a program runs in the parent image (``build_step.py``: pip): ``buildah.py`` runs it on this
machine, ``pod_builder.py`` in a pod of the cluster. The code is added as a layer without running anything
(``layers.py``), through the API of the registry (``registry_client.py``).
"""
