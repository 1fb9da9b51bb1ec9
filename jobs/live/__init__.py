"""Websockets that send logs, metrics and states as they change."""
