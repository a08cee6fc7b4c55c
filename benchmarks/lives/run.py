"""Random lives of galleries: processes of several kinds at once, killed and suspended at random moments.

Writers, a reader, an app of LanceDB and a store of another framework work on the same tables while a manager upgrades,
cuts over, rolls back and aborts, and a janitor optimizes, indexes and verifies. In other lives an operator follows a
script of all commands, with self-training and without, alone or beside writers, on Ray with `--ray`. Any process is
killed with SIGKILL, or suspended with SIGSTOP while another takes its place. After each kill all processes are
suspended, and all rows are compared with the acknowledged writes; a script without other writers must end as the
same script without a kill, to the last bit.

Each item belongs to one writer, and its vectors are a function of its source (`tests/known/vectors.py`). So the content
of each row is known at any moment: that of the last acknowledged write, or all of a write that was begun, or nothing of
it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before NumPy and Lance are loaded, here and in every process.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HAYSTACK_TELEMETRY_ENABLED": "False"}
os.environ |= {"LANCE_LOG": "error", "PYTHONWARNINGS": "ignore"}

from benchmarks.pages import markdown
from benchmarks.record import ROOT, Record, Row
from benchmarks.seeds import cases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HARNESS = "random lives"  # of a record that names none


def run(
    *,
    lives: int = 300,
    first_seed: int = 0,
    kills: int = 4,
    suspensions: int = 2,
    server: str = "",
    ray: bool = False,
    keep: Path | None = None,
) -> Iterator[Row]:
    """Live; `server` is the name of an object store (`benchmarks.object_store`), `keep` a folder for failed lives."""
    from benchmarks.lives.life import Lived
    from benchmarks.lives.stage import Stage

    lived = Lived()
    with ExitStack() as stack:
        folder, bucket, address = stack.enter_context(tempfile.TemporaryDirectory()), "", ""
        if server:
            from tests.servers.object_stores import SERVERS

            running = stack.enter_context(SERVERS[server]())
            os.environ |= running.environment
            bucket = running.uri("lives")
        if ray:
            address = cluster(stack)
        stage = Stage(Path(folder), bucket, address)
        for seed in range(first_seed, first_seed + lives):
            one = stage.live(seed, kills, suspensions, keep)
            print(f"seed {seed}: {one.seconds:.0f} s", *one.violations, sep="\n", file=sys.stderr, flush=True)
            lived += one
    for role in sorted(lived.kills | lived.suspensions | lived.writes):
        counts = {"kills": lived.kills[role], "suspensions": lived.suspensions[role], "writes": lived.writes[role]}
        yield {"process": role, **counts}
    yield from ({"command": command, "blows": lived.commands[command]} for command in sorted(lived.commands))
    counts = {"lives": lived.lives, "kills": lived.kills.total(), "suspensions": lived.suspensions.total()}
    counts |= {"in_a_write": lived.half, "writes": lived.writes.total(), "searches": lived.searches.total()}
    counts |= {"compared": lived.searches["compared"], "looks": lived.looks, "twins": lived.twins}
    yield {"process": "all", **counts, "violations": len(lived.violations), "seconds": round(lived.seconds)}


def cluster(stack: ExitStack) -> str:
    """Start a Ray cluster of two workers; its address."""
    import ray

    os.environ["PYTHONPATH"] = str(ROOT)  # where workers find the models
    context: Any = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    stack.callback(ray.shutdown)
    return str(context.address_info["gcs_address"])


def totals(record: Record) -> str:
    """A line for each harness."""
    head = ("what was lived", "lives", "kills", "suspensions", "acknowledged writes", "searches", "violations")
    keys = ("lives", "kills", "suspensions", "writes", "searches", "violations")
    rows = [[row.get("harness", HARNESS), *map(row.get, keys)] for row in record.rows if row.get("process") == "all"]
    cells = [[f"{one:,}" if isinstance(one, int) else one for one in row] for row in rows]
    return markdown(head, cells)


def _hit(record: Record) -> Iterator[Row]:
    """Rows of processes, where a harness tells them apart."""
    rows = [row for row in record.rows if row.get("process", "all") != "all"]
    for own in cases(rows, "harness").values():
        yield from own if len(own) > 1 else []


def chart(record: Record) -> Figure:
    """Kills and suspensions by process and step."""
    from benchmarks.charts import SERIES, bars, panels

    rows = sorted(_hit(record), key=lambda row: row["kills"] + row["suspensions"], reverse=True)
    figure, (axes,) = panels(0.36 * len(rows) + 0.8)
    names, kills, suspensions = ([row[key] for row in rows] for key in ("process", "kills", "suspensions"))
    blows = [sum(both) for both in zip(kills, suspensions, strict=True)]
    texts = [f"{killed} + {suspended}" for killed, suspended in zip(kills, suspensions, strict=True)]
    bars(axes, names, blows, texts, SERIES[1])
    axes.barh(range(len(rows)), kills, height=0.4, color=SERIES[0])
    axes.set_xlim(0, max(blows) * 1.18)
    axes.set_title("Kills (blue) + suspensions (orange), by process or step")
    return figure


SMOKE = {"lives": 1, "kills": 1, "suspensions": 1}
TABLES = {"totals": totals}
