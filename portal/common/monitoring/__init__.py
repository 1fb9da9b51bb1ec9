"""Monitoring of the portal's processes: metrics, heartbeats and structured logs.

Apps record here. ``portal.operations`` serves the metrics and the heartbeat on the operations port.
"""
