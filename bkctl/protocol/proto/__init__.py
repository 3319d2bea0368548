"""Messages of protocol v3; ``bookkeeper_protocol_pb2`` is generated from ``bookkeeper_protocol.proto``."""
