"""Writing to servers: blobs, streams and commits of a model or a dataset."""
