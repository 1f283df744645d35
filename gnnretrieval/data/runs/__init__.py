"""Rankings and runs: the one order, TREC files read and written."""
