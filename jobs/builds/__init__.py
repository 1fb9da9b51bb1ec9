"""From a code snapshot to what a backend can launch: a local bundle or an image."""
