"""Sets: what one pass over a bookie's files saw, published once and never changed."""
