"""The PaddleJob controller. It knows neither Django nor the portal: ``python -m jobs.kubernetes`` runs it alone.

Decisions are pure (``plan.py`` and what it calls); ``controller.py`` and what it calls speak to the API server.
"""
