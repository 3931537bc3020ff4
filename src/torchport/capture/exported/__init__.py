"""A model as an exported graph, for compilation."""
