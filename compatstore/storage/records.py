"""Records of versions, artifacts and upgrades in the registry, read back from JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from compatstore.boundary import checked_fields
from compatstore.derivation import Derivation
from compatstore.encoders.protocol import Encoder
from compatstore.errors import InvalidInput
from compatstore.evaluation.fusion import Fusion, Serving
from compatstore.evaluation.merging import Merge
from compatstore.storage.columns import VersionColumns
from compatstore.versions import OUTSIDE, DType, EmbeddingVersion, HeadLoss, Metric, SideDType

WriteMode = Literal["auto", "move_rows", "rewrite_columns"]

AS_IN_VERSION = ("name", "dim", "metric", "normalised", "dtype", "side_dim", "side_dtype", "head_loss")  # fields
STORED = "stored:"  # begins the spec of a model that is kept beside the table; its SHA-256 follows
MOST_CELLS = 1_000_000
NEIGHBOURS = 10  # that recall is measured by


@checked_fields
@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings of a search in an index: the more it reads, the more of the nearest it finds.

    Args:
        nprobes: Cells of the index whose rows are compared, >= 1; None for Lance's choice.
        refine: Multiple of the results wanted that is compared by the vectors themselves instead of their codes,
            >= 1; None for none.

    Raises:
        InvalidInput: A number is below 1.

    Examples:
        >>> cs.SearchSettings(nprobes=8, refine=10).options
        {'nprobes': 8, 'refine_factor': 10}
    """

    nprobes: int | None = None
    refine: int | None = None

    def __post_init__(self) -> None:
        for name in ("nprobes", "refine"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_CELLS:
                operation = f"search with {name}={value}"
                raise InvalidInput(operation, expected=f"a number from 1 to {MOST_CELLS}", found=f"{value}")

    @property
    def options(self) -> dict[str, int]:
        """Lance's options of a search."""
        named = (("nprobes", self.nprobes), ("refine_factor", self.refine))
        return {name: value for name, value in named if value is not None}

    def fetching(self, k: int) -> SearchSettings:
        """The same for candidates: as many rows are compared for k of them as for the 10 that recall is measured by.

        Example: refine 50 compares 500 rows for 10 results; for 20 candidates refine 25 does.
        """
        if self.refine is None or k <= NEIGHBOURS:
            return self
        return replace(self, refine=math.ceil(self.refine * NEIGHBOURS / k))

    def __str__(self) -> str:
        parts = (f"{name} {value}" for name, value in (("nprobes", self.nprobes), ("refine", self.refine)) if value)
        return ", ".join(parts) or "Lance's own settings"


@dataclass(frozen=True)
class Spent:
    """The used part of a backfill's budget, over all calls.

    Attributes:
        rows: Items that were embedded.
        seconds: Wall time.
        cost: Money: the encoder's bill if it reports one, else at the prices of the time.
        tokens: Tokens that the encoder was billed for, if it reports them.
    """

    rows: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class VersionRecord:
    """The record of an embedding version; see `EmbeddingVersion` for the fields of the same name.

    Attributes:
        model: Identity of the model, the encoder's fingerprint if it has one.
        encoder: Spec that builds the encoder, or "".
        encoder_model: Fingerprint of an encoder that was given to a version without a named model, and that
            gives the vectors that it has; else "".
        side_encoder: Spec that builds the side-information encoder, or "".
        head: SHA-256 of the stored classifier head, or None.
        head_loss: As of the version.
        columns: Its columns, or None while it is only registered.
        adopted: True if the vector column belongs to the app whose table was adopted.
        retired: True if its columns were dropped.
        reserved: True if an upgrade is about to add its columns; until it has, they are not dropped as unused.
        input_version: The version whose vectors its input hashes digest, or None.
        search: Search settings of its index, measured when it was built, or None.
        recall: Share of the 10 nearest neighbours that such a search found then, in [0, 1], or None.
        recall_at: Time of the measurement, ISO 8601, UTC, "" if it was not.
        compared: Share of the indexed rows that such a search compared then, about, in [0, 1], or None.
        cells: Cells that its index was built with, or None; Lance joins cells that have become small.
        base_model: Identity of the model that this version is derived of, and `encoder` builds; "" if its vectors
            are the model's own.
        derivation: The steps from that model's vectors to this version's.
    """

    name: str
    dim: int
    metric: Metric
    normalised: bool
    dtype: DType
    model: str
    encoder: str = ""
    encoder_model: str = ""
    side_dim: int | None = None
    side_dtype: SideDType = "float32"
    side_model: str = ""
    side_encoder: str = ""
    head: str | None = None
    head_loss: HeadLoss | None = None
    columns: VersionColumns | None = None
    adopted: bool = False
    retired: bool = False
    reserved: bool = False
    input_version: str | None = None
    search: SearchSettings | None = None
    recall: float | None = None
    recall_at: str = ""
    compared: float | None = None
    cells: int | None = None
    base_model: str = ""
    derivation: tuple[Derivation, ...] = ()

    def __post_init__(self) -> None:
        self.version()  # refuses a name, dimension or metric that no version has

    @property
    def is_nameless(self) -> bool:
        """True if the version's model has no name."""
        return self.model == f"{OUTSIDE}{self.name}"

    @property
    def contradictions(self) -> list[str]:
        """Differences between the record and its columns."""
        columns = self.columns
        if columns is None:
            return []
        if self.adopted:  # an app's column has the type that the app gave it
            declared, kept = f"{self.dim} values", f"{columns.dim} values"
        else:
            declared, kept = (f"{r.dim} values of {r.dtype}" for r in (self, columns))
        wrong = [] if declared == kept else [f"declares {declared}, its columns {kept}"]
        if columns.side_dim is not None:
            declared, kept = (f"side-information of {r.side_dim} values of {r.side_dtype}" for r in (self, columns))
            wrong += [] if declared == kept else [f"declares {declared}, its columns {kept}"]
        return wrong

    def without_index(self) -> VersionRecord:
        """A copy without index and its measurements."""
        return replace(self, search=None, recall=None, recall_at="", compared=None, cells=None)

    @property
    def stored_models(self) -> dict[str, str]:
        """SHA-256 of the version's models that are kept beside the table, by their role."""
        specs = {"encoder": self.encoder, "side-information encoder": self.side_encoder}
        digests = {role: spec.removeprefix(STORED) for role, spec in specs.items() if spec.startswith(STORED)}
        return digests if self.head is None else {**digests, "head": self.head}

    @classmethod
    def of(cls, version: EmbeddingVersion, **more: Any) -> VersionRecord:
        """Record a version; `more` sets fields that an `EmbeddingVersion` does not have."""
        settings: dict[str, Any] = {
            **{name: getattr(version, name) for name in AS_IN_VERSION},
            "model": version.identity,
            "encoder": version.encoder.spec if version.encoder is not None else "",
            "side_model": version.side_identity,
            "side_encoder": version.side_encoder.spec if version.side_encoder is not None else "",
        }
        return cls(**{**settings, **more})

    def version(self, encoder: Encoder | None = None, side_encoder: Encoder | None = None) -> EmbeddingVersion:
        """Make the version again."""
        fields = {name: getattr(self, name) for name in (*AS_IN_VERSION, "model", "side_model")}
        return EmbeddingVersion(**fields, encoder=encoder, side_encoder=side_encoder)


@dataclass(frozen=True)
class ArtifactRecord:
    """A linked artifact.

    Attributes:
        id: SHA-256 of its manifest.
        kind: Its kind.
        method: Method of its training.
        source: Name of its source version in this gallery.
        target: Name of its target version in this gallery.
        manifest: SHA-256 of its manifest file's bytes, which lie beside the table under that name.
        weights: SHA-256 of its weights' bytes, which lie beside the table under that name.
        reads_side: True if it reads side-information.
        writes_side: True if it writes side-information for the next hop.
    """

    id: str
    kind: str
    method: str
    source: str
    target: str
    manifest: str
    weights: str
    reads_side: bool = False
    writes_side: bool = False


OPEN, CHOSEN = "open", "chosen"  # of `RunRecord.full_backfill`


@dataclass(frozen=True)
class RunRecord:
    """An upgrade in progress or done.

    Attributes:
        target: Version upgraded to.
        source: Version whose vectors the hop reads.
        previous: Active version when the run began, the target of a rollback.
        path: Ids of the artifacts that the hop applies, in order; empty if nothing is transformed.
        state: One of `STATES`.
        backfill: Share of the gallery to embed natively, in [0, 1].
        policy: Order of the backfill.
        seed: Seed of the order.
        started_at: ISO 8601, UTC.
        max_rows: Items that the backfill may embed, or None.
        max_seconds: Seconds that it may take, or None.
        max_cost: Money that it may cost, or None.
        price_per_item: Money that embedding an item costs, or None if that is not known.
        ended_by: The limit that ended the backfill, or "".
        write_mode: Write mode of natives.
        given: Id of the artifact that a self-training upgrade began with, or "".
        begun: Number of the lease under which it began.
        lease: Number of the first lease whose staged natives count: that under which the target's columns were made, or
            which last folded staged rows.
        reads: Inputs of the backfill's encoder: the items' "source" or "id"; "" before any backfill.
        teaches: True for a self-training upgrade.
        learned_at: Native items at its last training round.
        served_at: Native items at the last training round in use by searches, once its transform has hopped all items.
        full_backfill: "open" if the limits of a self-training upgrade allow everything to be embedded instead,
            should that take less time than learning; "chosen" once that was decided; "" otherwise.
    """

    target: str
    source: str
    previous: str
    path: tuple[str, ...]
    state: str
    backfill: float
    policy: str
    seed: int
    started_at: str
    max_rows: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None
    price_per_item: float | None = None
    ended_by: str = ""
    write_mode: WriteMode = "auto"
    given: str = ""
    begun: int = 0
    lease: int = 0
    reads: str = ""
    teaches: bool = False
    learned_at: int = 0
    served_at: int = 0
    full_backfill: str = ""

    @property
    def open(self) -> bool:
        """True if the target's vectors are kept up to date."""
        return self.state not in ("rolled-back", "retired", "aborted")

    @property
    def identity(self) -> str:
        """Identity of the upgrade: an earlier one to the same target may have begun in the same second."""
        return f"{self.started_at}, lease {self.begun}"


@dataclass(frozen=True)
class ServingRecord:
    """The fused search of an upgrade.

    It is apart from the upgrade's own record, which a worker writes with the state from the begin of its work.

    Attributes:
        target: Version upgraded to.
        began: `RunRecord.identity` of the upgrade that it was chosen for; it is invalid for later ones.
        fusion: Weight and constants.
        labels: Column of labels that the weight was chosen by, or None.
        serving: "fused" if searches that do not name a way take the fusion.
    """

    target: str
    began: str
    fusion: Fusion
    labels: str | None = None
    serving: Serving = "fused"


@dataclass(frozen=True)
class MergeRecord:
    """The merge of the two parts of an upgrade without a hop; apart from the upgrade's record as `ServingRecord` is.

    Attributes:
        target: Version upgraded to.
        began: `RunRecord.identity` of the upgrade that it was chosen for; it holds for no later one.
        merge: The calibration and its measurement.
    """

    target: str
    began: str
    merge: Merge
