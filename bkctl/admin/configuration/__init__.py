"""The fate of a configuration: of each of its keys, and of the directories that it names."""
