"""Clean files read as columns of numbers, for work on rows by the million; numpy is behind it."""
