"""The commands of the tools that torchport stands in for: each translates options, and calls torchport."""
