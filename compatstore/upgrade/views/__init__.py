"""What people see of an upgrade, on a terminal and in a notebook; to import the package registers all views."""

from compatstore.upgrade.views import details, estimate, plan, report, result, spending, status, waves

__all__ = ["details", "estimate", "plan", "report", "result", "spending", "status", "waves"]
