"""A command line → one public call → text or JSON; the only stage that prints."""
