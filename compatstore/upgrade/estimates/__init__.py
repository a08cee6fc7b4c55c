"""What an upgrade will give, estimated on a sample, and what it gave."""
