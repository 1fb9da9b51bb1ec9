"""Resources of the portal's API, one class each: the attributes of ``regatta.Client``."""
