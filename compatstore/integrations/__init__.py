"""Vector stores of other frameworks on a gallery. Each framework is an extra, such as compatstore[langchain]."""
