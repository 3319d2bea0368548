"""The bookie's port: connections, runs of requests, turns, stages and answers."""
