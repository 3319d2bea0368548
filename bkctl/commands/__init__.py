"""Thin typer verbs, one module per noun."""
