"""The client's operations: machines that take events and give instructions (:mod:`bkctl.client.machine`).

Importing one imports neither a network nor a clock. A machine is made of parts (a read of one entry, a
pipeline of appends, a metadata update) that share its :class:`~bkctl.client.ops.exchange.Exchange`.
"""
