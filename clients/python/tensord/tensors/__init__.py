"""Checkpoints: manifests, and reads of tensors and their parts into memory."""
