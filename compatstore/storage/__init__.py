"""The only part that uses Lance: columns, registry, commits, staged natives, indexes, files beside the table."""
