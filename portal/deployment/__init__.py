"""Manifests of an installation on Kubernetes, rendered from one values file. Pure: no Django, no clock, no network.

``fields`` is the table of all values, ``values`` parses a values file with it, and ``transformations`` apply the values
to the objects of ``deploy/kubernetes``. ``command`` is the shell of ``manage.py render-manifests``.
"""
