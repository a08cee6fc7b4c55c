"""Who works on an upgrade: one manager at a time."""
