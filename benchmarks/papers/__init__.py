"""Claims of the four papers, beside rows of the records."""
