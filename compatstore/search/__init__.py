"""Search: plan, then execute."""
