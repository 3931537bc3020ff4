"""The commands of the tools that torchport replaces: each translates its options, and calls torchport."""
