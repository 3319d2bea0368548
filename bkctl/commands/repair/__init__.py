"""``bkctl repair``: what repairs did, and the way back."""
