"""A model's graphs → a raw file with a row for each op."""
