"""Random lives of mirrored galleries, compared with a model of the truth.

| file | content |
|---|---|
| `world.py` | a collection, its models, and what is true of its rows |
| `rival.py` | the app, which writes all the time |
| `jobs.py` | verbs in processes of their own, which kill themselves at a line of code |
| `settled.py` | the state of a gallery at a quiet point |
| `checks.py` | what must hold there |
| `life.py` | one life |
"""
