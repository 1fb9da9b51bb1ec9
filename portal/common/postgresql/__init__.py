"""Django's PostgreSQL backend with a pool of connections for each process: ``ENGINE`` of ``portal.env.database``."""
