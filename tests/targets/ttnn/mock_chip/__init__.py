"""A judge for programs: Tenstorrent's own library with a mock chip, in a separate interpreter."""
