"""What each kind of side-information is worth to a forward transform, and what it costs to store."""
