"""A model as an exported graph: what is compiled."""
