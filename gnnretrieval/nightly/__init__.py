"""The nightly update of a running search: from its clicks to a better index, promoted only by evidence."""
