"""Canonical tables over what bookies have on disk, and the fleet jobs over them."""
