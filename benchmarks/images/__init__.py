"""Models that are trained on images, and transforms between them, in real galleries."""
