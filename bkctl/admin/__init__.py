"""One function per operator verb; returns frozen dataclasses, never prints."""
