"""Verification of a gallery, and examination of the machine that works on it."""

from compatstore.verification.checks import verify, verify_at
from compatstore.verification.context import Diagnosis, Examination, Finding, Verification
from compatstore.verification.examination import doctor

__all__ = ["Diagnosis", "Examination", "Finding", "Verification", "doctor", "verify", "verify_at"]
