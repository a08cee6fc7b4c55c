"""Random lives of a gallery: many processes of several kinds at once, killed and suspended at random moments.

    python -m benchmarks.lives --lives 300 [--journal FILE]

`benchmarks.crashes` kills one operator in the course of a script. Here nothing is in order. Two writers, a reader, an
app of LanceDB and a store of LangChain, Haystack or LlamaIndex work on the same tables while a manager upgrades, cuts
over, rolls back and aborts, and a janitor optimizes, indexes and verifies (`actors.py`). Any of them is killed with
SIGKILL, or suspended with SIGSTOP while another takes its place (`life.py`). After each kill all processes are
suspended, and the tables are compared with the writes that were acknowledged.

Each item belongs to one writer, and what an item holds is a function of its source (`benchmarks.crashes.truth`). So it
is known at any moment, however the processes run, what each row must hold: what the last acknowledged write says, or
all of a write that was begun, or nothing of it.
"""
