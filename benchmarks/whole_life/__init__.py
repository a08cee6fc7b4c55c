"""A gallery's life from the first item to the cutover, at several sizes, beside what the machine and Lance do alone."""
