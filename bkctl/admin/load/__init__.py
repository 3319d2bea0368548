"""A load generator for one bookie: frames built ahead, so that what is measured is the bookie."""
