"""Typed configuration: the declared keys, the properties syntax, and the bookie's settings made of both."""
