"""Whether a gallery is sound, and whether this machine is fit to work on it."""

from compatstore.verification.checks import verify
from compatstore.verification.finding import Finding, Verification

__all__ = ["Finding", "Verification", "verify"]
