"""The terminal screens of ``bkctl top``: the only home of textual."""
