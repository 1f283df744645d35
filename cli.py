"""``python cli.py …`` from a checkout is ``gnnretrieval …``."""

from gnnretrieval.cli import main

main()
