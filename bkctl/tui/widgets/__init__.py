"""The widgets that draw lines on the terminal, a changed piece at a time."""
