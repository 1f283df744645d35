"""``python -m gnnretrieval``: the command line, for launchers of several processes such as torchrun."""

from gnnretrieval.cli import main

if __name__ == "__main__":
    main()
