"""A model as the graph of the calls that its code makes: what is written back as code."""
