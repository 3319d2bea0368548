"""``bkctl doctor``: ``app`` has the command, the other modules have its subjects and its report."""
