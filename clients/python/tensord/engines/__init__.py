"""Plugins of inference engines, and modules that `tensord.dcp` alone uses."""
