"""What all commands stand on: the nouns, options, targets, confirmation, progress and output."""
