"""Qdrant's local mode with one vector without a name: a target is a second collection."""

from __future__ import annotations

from stores.engines import qdrant

from compatstore.stores.store import Parts


class Engine(qdrant.Engine):
    name = "qdrant, unnamed"
    vector = ""
    parts = Parts(source="text", metadata=("lang",))

    def rows(self, collection, target=None):
        rows = super().rows(collection)
        if target is not None:
            vectors = {point.id: self.of(point, "") for point in self.points(f"{collection}_{target}")}
            assert set(vectors) <= set(rows)
            for key, row in rows.items():
                row["target"] = vectors.get(key)
        return rows
