"""Search: plan, then execute."""

from compatstore.search.execute import COMPUTED, as_queries, execute
from compatstore.search.fusion import FusionPlan, search_fused
from compatstore.search.plan import Part, SearchPlan, plan_search
from compatstore.search.serving import Serving, plan_serving, read_served, require_fingerprints

__all__ = [
    "COMPUTED",
    "FusionPlan",
    "Part",
    "SearchPlan",
    "Serving",
    "as_queries",
    "execute",
    "plan_search",
    "plan_serving",
    "read_served",
    "require_fingerprints",
    "search_fused",
]
