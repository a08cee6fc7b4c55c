"""Galleries in an object store: what its requests are, and whether two processes that commit at once lose anything.

    python -m benchmarks.object_store --rounds 1000

The kills are those of `benchmarks.crashes --store s3`, in the same server.
"""
