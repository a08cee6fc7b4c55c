"""Items of `Gallery.add` on their way to the table: read, check, complete, write."""
