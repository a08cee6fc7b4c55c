"""The command line: every verb parses, makes one call of the API, and shows the result."""
