"""The machine and what is installed on it: optional packages, imports on first use, memory, processor faults."""
