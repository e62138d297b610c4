"""Plugins of inference engines, and what `tensord.dcp` alone needs."""
