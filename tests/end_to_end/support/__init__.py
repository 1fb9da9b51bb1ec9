"""The portal, its processes, a browser and job code for end-to-end tests."""
