"""Runs on disk and what they are worth: run directories, record files, checkpoints, evaluation of models."""
