"""The objects of which a PaddleJob consists, each as the JSON that the API server takes. Pure."""
