"""Other simulators on the same workload, each a script for an environment of its own."""
