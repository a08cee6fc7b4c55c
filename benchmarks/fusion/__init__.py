"""Quality over the backfilled share: what each way to serve an upgrade finds, on real sets."""
