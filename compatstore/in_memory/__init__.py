"""Vectors in memory, by FAISS: the exact nearest of large batches, and a graph that finds nearly all of them fast."""
