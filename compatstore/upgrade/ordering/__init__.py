"""Which items come first: the policies of a backfill, what they read, and what is drawn at random."""
