"""``python cli.py …`` from a checkout is ``gnnretrieval …``."""

from gnnretrieval.__main__ import main

main()
