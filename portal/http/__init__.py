"""HTTP below the views: limits of headers, bodies and connections, and streaming of bodies."""
