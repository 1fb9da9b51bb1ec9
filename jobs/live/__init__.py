"""Websockets: logs, metrics and states as they come."""
