"""Other vector databases: a store that an app owns stays the master, and a gallery beside it holds the upgrade.

| file | content |
|---|---|
| `store.py` | the protocol of a store, and digests of vectors |
| `address.py` | addresses, and the file of each kind of store |
| `ledger.py` | what the store is known to hold, kept beside the gallery |
| `sync.py` | pull what changed in the store, push what the upgrade made |
| `link.py` | a gallery's store: made by a mirror, followed by the verbs of an upgrade |
"""
