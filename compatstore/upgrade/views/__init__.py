"""What people see of an upgrade, on a terminal and in a notebook; to import the package registers all views."""

from compatstore.upgrade.views import report, status

__all__ = ["report", "status"]
