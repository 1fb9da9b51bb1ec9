"""Notebooks: JupyterLab in an ordinary job with the framework ``notebook``.

access       who may reach a notebook, and in which replica it runs
documents    the notebook files that the platform writes; pure
environment  packages of every notebook, and the files of the client
idle         the sweep's look: activity, idle stop, end of tokens
inputs       the fields that a caller gives
selectors    queries, states, documents of the API
services     actions of users
sessions     sessions and tickets of the notebooks' own origins
sources      what a notebook starts from
"""
