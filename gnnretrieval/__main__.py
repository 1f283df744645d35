"""``python -m gnnretrieval`` and the command ``gnnretrieval``: the command line, interruptible while it is imported."""

import sys


def main() -> None:
    """Import the command line and run it (:func:`gnnretrieval.cli.main`)."""
    try:
        from gnnretrieval.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
