"""Looking into the Python processes of a replica: what runs inside them, and what the agent asks of them.

``startup`` is on the import path of every process of a replica. Its ``sitecustomize`` starts ``inside``.
"""
