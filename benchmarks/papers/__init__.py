"""What the papers say, beside the rows of our journals that settle it."""
