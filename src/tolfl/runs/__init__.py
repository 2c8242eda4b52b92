"""Runs on disk and their evaluation: run directories, record files, checkpoints, scores of models."""
