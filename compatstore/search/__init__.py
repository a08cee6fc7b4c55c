"""Search: plan, then execute."""

from __future__ import annotations

from typing import TypeAlias

from compatstore.evaluation.fusion import Serving
from compatstore.search.cascade import Cascade, CascadePlan, plan_cascade, search_cascade
from compatstore.search.condition import joined
from compatstore.search.execute import COMPUTED, as_queries, execute
from compatstore.search.fusion import FusionPlan, search_fused
from compatstore.search.plan import Part, SearchPlan, plan_search
from compatstore.search.scan import require_columns, require_count, result_columns, whole_columns, with_fields
from compatstore.search.serving import plan_serving, read_served, require_fingerprints, way_of

QueryPlan: TypeAlias = SearchPlan | FusionPlan | CascadePlan

__all__ = [
    "COMPUTED",
    "Cascade",
    "CascadePlan",
    "FusionPlan",
    "Part",
    "QueryPlan",
    "SearchPlan",
    "Serving",
    "as_queries",
    "execute",
    "joined",
    "plan_cascade",
    "plan_search",
    "plan_serving",
    "read_served",
    "require_columns",
    "require_count",
    "require_fingerprints",
    "result_columns",
    "search_cascade",
    "search_fused",
    "way_of",
    "whole_columns",
    "with_fields",
]
