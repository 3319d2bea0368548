"""The content of the screens: samples in, lines out; nothing here knows of a terminal."""
