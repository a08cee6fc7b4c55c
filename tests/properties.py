"""Number of examples of a property test: 25 at most by default, all of them in `.ci/run`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("COMPATSTORE_EXAMPLES", "fast")
MOST = {"fast": 25, "full": 100}
LONGEST = {"fast": 8, "full": 50}  # steps of a state machine

# No test depends on how fast the machine is.
for _name, _most in MOST.items():
    settings.register_profile(
        _name,
        max_examples=_most,
        stateful_step_count=LONGEST[_name],
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )


def examples(count: int, steps: int | None = None, **others) -> settings:
    """Settings of a property that tries `count` examples in the full profile, and at most 25 in the fast one."""
    fast = PROFILE == "fast"
    if steps is not None:
        others["stateful_step_count"] = min(steps, LONGEST["fast"]) if fast else steps
    return settings(settings.get_profile(PROFILE), max_examples=min(count, MOST["fast"]) if fast else count, **others)
