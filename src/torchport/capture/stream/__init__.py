"""A model as the stream of ops that it runs, for analysis."""
