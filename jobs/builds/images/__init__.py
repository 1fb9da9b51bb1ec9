"""Images of jobs on Kubernetes: their content, and how they are built (docs/decisions/0023).

A job's image is built on others, each named by the hash of all its inputs::

    base  ->  runtime  ->  environment (if there are requirements)  ->  job (the code)

``plan.py`` is pure and computes the list; the program ``worker.py`` builds those that the registry does not have. The
runtime and the environment run a program in their parent image (``build_step.py``: pip): ``buildah.py`` does that on
this machine, ``pod_builder.py`` in a pod of the cluster. The code is added as a layer without running anything
(``layers.py``), through the API of the registry (``registry_client.py``).
"""
