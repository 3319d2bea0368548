"""What draws lines on the terminal, a changed piece at a time."""
