"""An upgrade's life: plan, expand, hop, backfill, ready, cutover, retire; rollback before the end."""
