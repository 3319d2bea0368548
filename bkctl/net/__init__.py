"""The asyncio driver of the wire protocol, client side."""
