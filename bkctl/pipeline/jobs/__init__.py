"""The jobs, a module each."""
