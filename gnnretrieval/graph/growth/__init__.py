"""Adding queries and passages to a graph."""
