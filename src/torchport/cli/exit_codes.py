"""What a command's exit code says."""

FINE = 0
FINDING = 1  # it ran, and found something: an op that stays, a result that is off
FAILED = 2
INTERRUPTED = 130  # as shells have it: 128 and SIGINT
