"""Where the jobs of an upgrade run: in this process, or on a Ray cluster."""
