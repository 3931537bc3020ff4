"""The exit codes of the commands."""

FINE = 0
FINDING = 1  # it ran, and found something: an op that stays on the host, an inaccurate result
FAILED = 2
INTERRUPTED = 130  # the shells' convention: 128 + SIGINT
