"""The report of an upgrade for people: its content, and its form as a folder of Markdown or as one page."""
