"""What a caller asks of an upgrade: how much is embedded natively, what must be reached, and how the work runs."""
