"""What the screens say: samples in, lines out; nothing here knows of a terminal."""
