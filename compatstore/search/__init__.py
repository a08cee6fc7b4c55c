"""Search: plan, then execute."""

from compatstore.search.execute import COMPUTED, execute
from compatstore.search.plan import Part, SearchPlan, plan_search
from compatstore.search.query import as_queries

__all__ = ["COMPUTED", "Part", "SearchPlan", "as_queries", "execute", "plan_search"]
