"""The images of jobs on Kubernetes: what goes into them and how they are made (docs/decisions/0023).

A job's image stands on others, each named by the hash of all that it is made from::

    base  ->  runtime  ->  environment (where there are requirements)  ->  job (the code)

``plan.py`` is pure and says which; ``worker.py`` is the program that makes those that the registry does not have. Two
of them need a program to run in their parent (``build_step.py``: pip): ``buildah.py`` does that on this machine,
``pod_builder.py`` in a pod of the cluster. The code is put on top without running anything (``layers.py``), by the
registry's own interface (``registry_client.py``).
"""
