"""A model as the stream of the ops that it runs: what is analysed."""
