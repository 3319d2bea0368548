"""``doctor``: every check there is on a bookie's directories, as findings with the next command for each."""
