"""Search: plan, then execute."""

from compatstore.search.execute import execute
from compatstore.search.plan import Part, SearchPlan, plan_search

__all__ = ["Part", "SearchPlan", "execute", "plan_search"]
