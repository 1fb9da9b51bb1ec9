"""Delivery to the portal: spool, batches, artifacts, and redelivery for an agent that is gone."""
