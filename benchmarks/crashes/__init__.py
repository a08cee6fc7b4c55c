"""Real processes are killed at random moments of an upgrade, while others write to the gallery and search it.

    python -m benchmarks.crashes --kills 300 --suspensions 100 --seeds 20

A *life* is a gallery that is brought from its source version to its target by an operator's script (`script.py`), run
by a process of its own (`victim.py`) that is killed with SIGKILL again and again and restarted with the command at
which it died. Others are suspended with SIGSTOP until a successor has taken their lease over, and wake up while that
one works (`suspension.py`). Meanwhile an app adds, changes and deletes items, through the API and behind its back
(`writer.py`), and a reader searches all the time (`reader.py`). What every vector must be can be computed (`truth.py`),
so after each kill and suspension the table is compared with the app's memory (`checks.py`), and at the end with a life
that nobody disturbed.
"""
