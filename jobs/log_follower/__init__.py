"""What processes without an agent print, followed by the portal: ``cursor.py`` knows how far a log was read (pure),
``follower.py`` follows one, ``pool.py`` has all followed that should be.
"""
