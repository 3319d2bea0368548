"""What ``bkctl top`` knows: samples of bookies, where they come from, and what holds a bookie back."""
