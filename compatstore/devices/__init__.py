"""Devices: artifacts as ONNX files, and the program that applies them. Importing it loads nothing."""
