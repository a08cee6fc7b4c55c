"""Native vectors on their way into the table."""
