"""What users hand to `Gallery.add`, on its way to the table: read, check, complete, write."""
