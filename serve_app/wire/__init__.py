"""Shapes on the wire, and nothing else."""
