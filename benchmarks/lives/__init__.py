"""Random lives of galleries under kills and suspensions, against a model of truth."""
