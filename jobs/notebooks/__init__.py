"""Notebooks: JupyterLab in an ordinary job with the framework ``notebook``.

access   who may reach a notebook, and in which replica it runs
"""
