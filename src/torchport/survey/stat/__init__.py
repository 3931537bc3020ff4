"""A model's graphs → the records of their ops, in a raw file."""
