"""The PaddleJob resource: names, specification, schema, conditions, actions. Pure."""
