"""Connections, requests and ranges of resources over HTTP; knows neither tensors nor rows."""
