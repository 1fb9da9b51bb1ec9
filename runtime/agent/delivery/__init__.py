"""Delivery to the portal: spool, batches, artifacts, and redelivery for a dead agent."""
