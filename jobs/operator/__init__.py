"""The PaddleJob controller. It depends neither on Django nor on the portal: ``python -m jobs.operator`` runs it alone.

Decisions are pure (``decide/plan.py`` and the functions that it calls); ``run/controller.py`` and the modules that it
calls send requests to the API server.
"""
