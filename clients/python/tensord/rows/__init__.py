"""Datasets: splits, and reads of their rows in any order."""
