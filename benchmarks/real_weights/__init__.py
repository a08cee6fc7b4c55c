"""Models whose weights come from a package index, upgraded through the command line alone."""
