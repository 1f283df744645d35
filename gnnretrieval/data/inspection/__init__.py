"""What is in a dataset directory and what is wrong with it."""
