"""Search: plan, then execute."""

from compatstore.search.execute import COMPUTED, as_queries, execute
from compatstore.search.plan import Part, SearchPlan, plan_search

__all__ = ["COMPUTED", "Part", "SearchPlan", "as_queries", "execute", "plan_search"]
