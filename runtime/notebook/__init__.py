"""Jupyter Server in a replica: kernels, a record of their outputs, notebook files and JupyterLab.

Nothing outside this package imports it; Jupyter's packages are in ``requirements-notebook.txt``.
"""
