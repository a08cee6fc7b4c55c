"""Galleries in an object store, on servers of this machine."""
