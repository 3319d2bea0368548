"""Messages that BookKeeper stores as protobuf; ``bookkeeper_pb2`` is generated from ``bookkeeper.proto``."""
