"""What processes without an agent print, followed by the portal: ``place.py`` knows how far a log was read (pure),
``replica.py`` follows one, ``rounds.py`` has all followed that should be.
"""
