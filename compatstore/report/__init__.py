"""The report of an upgrade for people: what it says, and how a folder of Markdown or one page shows it."""
