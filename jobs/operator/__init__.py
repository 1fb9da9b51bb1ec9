"""The PaddleJob controller. It knows neither Django nor the portal: ``python -m jobs.operator`` runs it alone.

Decisions are pure (``decide/plan.py`` and what it calls); ``run/controller.py`` and what it calls speak to the API
server.
"""
