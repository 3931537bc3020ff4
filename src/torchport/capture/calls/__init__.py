"""A model as a graph of the calls that its code makes, for code generation."""
