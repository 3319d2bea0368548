"""The tree on ZooKeeper. Nothing outside imports kazoo, and none of its exceptions leaves."""
