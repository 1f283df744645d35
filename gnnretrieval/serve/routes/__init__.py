"""The server's addresses: one router a subject."""
