"""``bkctl autorecovery``: lost replicas, who puts them back, and the switches of that."""
