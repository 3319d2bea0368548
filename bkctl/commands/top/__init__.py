"""``bkctl top``: ``app`` has the command, ``keys`` what it prints."""
