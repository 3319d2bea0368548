"""The base of all commands: the nouns, options, targets, confirmation, progress and output."""
