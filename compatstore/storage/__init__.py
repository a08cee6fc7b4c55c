"""The only part that knows Lance: columns, registry, commits, staged natives, indexes, files beside the table."""
