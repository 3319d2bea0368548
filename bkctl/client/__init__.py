"""The ledger client: operations as machines without I/O, one asyncio driver, a synchronous facade."""
