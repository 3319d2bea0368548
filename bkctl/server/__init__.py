"""The bookie as a process: identity, directories, network, stages, life cycle."""
